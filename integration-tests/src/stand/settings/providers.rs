//! Secrets of the providers that real command-line tools talk to: what they look like, where they may go, who gets them.

/// One secret and its declaration by the catalogue.
#[derive(Debug)]
pub struct Provider {
    pub secret: &'static str,
    like: &'static str,
    /// Hosts of the world.
    hosts: &'static [&'static str],
    harnesses: &'static [&'static str],
    /// Prefix, alphabet and number of what follows it, and what ends it.
    shape: (&'static str, &'static [u8], usize, &'static str),
}

const HEX: &[u8] = b"0123456789abcdef";
const BASE62: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

pub const PROVIDERS: [Provider; 8] = [
    Provider {
        secret: "openai-key",
        like: "openai-api-key",
        hosts: &["api.openai.com"],
        harnesses: &["codex"],
        shape: ("sk-abcdefghij0123456789T3BlbkFJ", BASE62, 20, ""),
    },
    Provider {
        secret: "mistral-key",
        like: "mistral-api-key",
        hosts: &["api.mistral.ai"],
        harnesses: &["mistral-vibe"],
        shape: ("", BASE62, 32, ""),
    },
    Provider {
        secret: "gemini-key",
        like: "gemini-api-key",
        hosts: &["generativelanguage.googleapis.com"],
        harnesses: &["gemini-cli"],
        shape: ("AIza", BASE62, 35, ""),
    },
    Provider {
        secret: "anthropic-key",
        like: "anthropic-api-key",
        hosts: &["api.anthropic.com"],
        harnesses: &["claude-code", "opencode", "aider", "pi"],
        shape: ("sk-ant-api03-", BASE62, 93, "AA"),
    },
    Provider {
        secret: "copilot-token",
        like: "github-copilot-token",
        hosts: &["api.github.com", "api.githubcopilot.com", "api.individual.githubcopilot.com"],
        harnesses: &["copilot"],
        shape: ("github_pat_0123456789ABCDEFabcdef_", BASE62, 59, ""),
    },
    Provider {
        secret: "github-token",
        like: "github-pat",
        hosts: &["github.com", "api.github.com"],
        harnesses: &["gh", "git"],
        shape: ("github_pat_abcdefABCDEF9876543210_", BASE62, 59, ""),
    },
    Provider {
        secret: "dashscope-key",
        like: "dashscope-api-key",
        hosts: &["dashscope.aliyuncs.com"],
        harnesses: &["qwen-code"],
        shape: ("sk-", HEX, 32, ""),
    },
    Provider {
        secret: "theme-password",
        like: "shopify-theme-access",
        hosts: &["theme-kit-access.shopifyapps.com"],
        harnesses: &["shopify"],
        shape: ("shptka_", HEX, 32, ""),
    },
];

impl Provider {
    /// For `secrets.toml`.
    pub(super) fn declaration(&self) -> String {
        let Self { secret, like, hosts, harnesses, .. } = self;
        format!(
            "\n[{secret}]\nlike = {like:?}\nfile = \"/run/secrets/{secret}\"\nhosts = {hosts:?}\n\
             grant-to = {{ harnesses = {harnesses:?} }}\n"
        )
    }

    /// For `[names]` in `sidecar.toml`.
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.hosts.iter().copied()
    }

    /// A value of its shape; `drawn` gives that many characters of an alphabet.
    pub(super) fn value<E>(&self, drawn: impl Fn(&[u8], usize) -> Result<String, E>) -> Result<String, E> {
        let (prefix, alphabet, count, end) = self.shape;
        Ok(format!("{prefix}{}{end}", drawn(alphabet, count)?))
    }
}
