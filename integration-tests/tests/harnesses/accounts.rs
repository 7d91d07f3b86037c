//! Codex and Claude Code with an account whose tokens expire every few seconds, at a provider that takes each refresh token
//! once: two containers at a time, answers all along, and no token of it in any of them.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::json;
use understudy_integration_tests::mock::accounts::{ACCOUNT_ID, Scheme, Tokens, tokens};
use understudy_integration_tests::mock::{Entry, Request};
use understudy_integration_tests::podman::{Container, until};
use understudy_integration_tests::stand::{Agent, TOKEN_LIFETIME};

use crate::stand;
use crate::tool::{Tool, as_first, node_arch};

/// As often as it takes for two renewals.
const LONG_ENOUGH: Duration = TOKEN_LIFETIME.saturating_mul(3);

/// There is no curl in the image.
const POST: &str = "import ssl, sys, urllib.request; \
    context = ssl.create_default_context(cafile='/etc/ssl/certs/ca-certificates.crt'); \
    told = urllib.request.urlopen(sys.argv[1], sys.argv[2].encode(), context=context); \
    print(told.read().decode(), end='')";

/// A login, and the file in which its program keeps it.
pub(crate) struct Login {
    pub(crate) scheme: Scheme,
    /// As the mock calls it; no two tests have the same.
    pub(crate) name: &'static str,
    pub(crate) format: &'static str,
    pub(crate) like: &'static str,
    pub(crate) token_path: &'static str,
    /// What its program runs each time.
    pub(crate) tool: Tool,
}

impl Login {
    /// What a login made on the host: it has expired, so that the sidecar renews it at once.
    fn tokens(&self) -> Tokens {
        tokens(self.scheme, self.name, 0, Duration::ZERO)
    }

    fn file(&self) -> String {
        let Tokens { access, refresh, id } = self.tokens();
        let file = match self.scheme {
            Scheme::ChatGpt if self.format == "opencode-openai" => {
                json!({ "openai": { "type": "oauth", "access": access, "refresh": refresh,
                    "expires": 1_700_000_000_000_u64, "accountId": ACCOUNT_ID } })
            }
            Scheme::ChatGpt => {
                let tokens = json!({ "access_token": access, "refresh_token": refresh, "id_token": id, "account_id": ACCOUNT_ID });
                json!({ "auth_mode": "chatgpt", "OPENAI_API_KEY": null, "tokens": tokens,
                    "last_refresh": "2026-01-01T00:00:00Z" })
            }
            Scheme::Google => {
                json!({ "access_token": access, "refresh_token": refresh, "token_type": "Bearer",
                "scope": "https://www.googleapis.com/auth/cloud-platform", "expiry_date": 1_700_000_000_000_u64 })
            }
            Scheme::Claude => {
                json!({ "claudeAiOauth": { "accessToken": access, "refreshToken": refresh, "expiresAt": 1_700_000_000_000_u64,
                    "scopes": ["user:inference", "user:profile", "user:sessions:claude_code"],
                    "subscriptionType": "max" } })
            }
        };
        file.to_string()
    }

    /// The secret that it is.
    pub(crate) fn secret(&self) -> String {
        format!("work-{}", self.name)
    }

    /// Its program in a container with it: another test may have made another account for the same program.
    pub(crate) fn agent(&self) -> Agent {
        self.tool.agent().annotation("understudy.secrets", &self.secret())
    }

    /// Its declaration.
    fn table(&self) -> String {
        let Self { name, like, tool, .. } = self;
        let (secret, harness) = (self.secret(), tool.harness);
        format!(
            "[{secret}]\nlike = \"{like}\"\naccount = \"{name}\"\ngrant-to = {{ harnesses = [\"{harness}\"] }}\n"
        )
    }

    /// Takes its declaration back: others, which do not say whose login they want, then need not choose.
    pub(crate) fn forget(&self) {
        stand().take_back(&self.table()).unwrap();
        let secret = self.secret();
        until("its end", || Ok(!stand().operator(&["secrets"])?.success()?.contains(&secret))).unwrap();
    }

    /// Imports it, and waits until it was renewed.
    pub(crate) fn import(&self) {
        let Self { name, format, .. } = self;
        stand().declare(&self.table()).unwrap();
        let import = ["login", "import", format, "--account", name];
        let told = stand().operator_reads(&import, self.file().as_bytes()).unwrap();
        assert!(told.stdout.contains("is renewed at once"), "{}", told.text());
        until("the first renewal", || Ok(!self.renewals().is_empty()))
            .unwrap_or_else(|error| panic!("{error:#}: {}", stand().sidecar_log().unwrap()));
    }

    /// The requests for new tokens that its provider got.
    pub(crate) fn renewals(&self) -> Vec<Request> {
        let requests = stand().requests(self.token_path).unwrap();
        requests
            .into_iter()
            .filter(|request| request.body_start.contains(&format!("F{}-N", self.name)))
            .collect()
    }

    /// Every token of it that there was: of the login file, and what the provider made since.
    pub(crate) fn all(&self) -> BTreeSet<String> {
        let first = self.tokens();
        let mut all: BTreeSet<String> = [first.access, first.refresh].into_iter().chain(first.id).collect();
        all.extend(self.used());
        let renewals = u64::try_from(self.renewals().len()).unwrap();
        for number in 0..=renewals + 1 {
            all.insert(tokens(self.scheme, self.name, number, Duration::ZERO).refresh);
        }
        all
    }

    /// The access tokens that its provider's host was sent.
    fn used(&self) -> BTreeSet<String> {
        let mut used = BTreeSet::new();
        for entry in stand().arrived().unwrap() {
            let Entry::Request(request) = entry else { continue };
            let bearer = request.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
            used.extend(bearer.filter(|_| request.host.contains(self.host())).map(str::to_owned));
        }
        used
    }

    /// An answer that tells a token which was good before, with every renewal since, tells its stand-in.
    fn assert_former_ones_stay_out(&self, container: &Container) {
        let used = self.used();
        assert!(used.len() > 2, "{}", used.len());
        for token in used {
            let backwards: String = token.chars().rev().collect();
            let url = format!("https://{}/backwards", self.host());
            let told = container.exec(&["python3", "-c", POST, &url, &backwards]);
            let told = told.unwrap().success().unwrap();
            assert_eq!(told.len(), token.len(), "{told}");
            assert!(told != token, "a token of before came back");
        }
    }

    fn host(&self) -> &'static str {
        match self.scheme {
            Scheme::ChatGpt => "chatgpt.com",
            Scheme::Claude => "api.anthropic.com",
            Scheme::Google => "cloudcode-pa.googleapis.com",
        }
    }

    /// Two containers answer all along.
    fn prove(&self) {
        self.import();
        let containers = [self.tool.run(&self.agent()), self.tool.run(&self.agent())];
        let end = Instant::now() + LONG_ENOUGH;
        let mut answers = 0;
        while Instant::now() < end || self.renewals().len() < 3 {
            for container in &containers {
                self.answers(container);
                answers += 1;
            }
            assert!(Instant::now() < end + LONG_ENOUGH * 8, "{} renewals", self.renewals().len());
        }
        let renewals = self.renewals();
        let bodies: BTreeSet<&str> = renewals.iter().map(|request| request.body_start.as_str()).collect();
        if self.scheme != Scheme::Google {
            assert_eq!(bodies.len(), renewals.len(), "a refresh token was sent twice");
        }
        let all = self.all();
        assert!(self.scheme == Scheme::Google || all.len() > renewals.len() + 2, "{}", all.len());
        let values: Vec<&str> = all.iter().map(String::as_str).collect();
        for container in &containers {
            self.assert_former_ones_stay_out(container);
            crate::end(container);
            crate::hunt_for(container, &values);
        }
        println!("{answers} answers, {} renewals", renewals.len());
    }

    fn answers(&self, container: &Container) {
        let told = as_first(container, self.tool.command);
        assert!(
            told.stdout.contains(self.tool.answer),
            "{}\n{}",
            told.text(),
            stand().sidecar_log().unwrap()
        );
    }
}

pub(crate) fn codex() -> &'static str {
    match node_arch() {
        "arm64" => "/opt/codex/node_modules/@openai/codex/vendor/aarch64-unknown-linux-musl/bin/codex",
        _ => "/opt/codex/node_modules/@openai/codex/vendor/x86_64-unknown-linux-musl/bin/codex",
    }
}

#[test]
fn codex_answers_with_an_account_that_is_renewed_all_along() {
    let login = chatgpt("chatgpt");
    login.prove();
    over_events(login.tool);
}

/// Without WebSockets it sends its requests compressed, and reads events.
fn over_events(tool: Tool) {
    let provider = r#"{name="OpenAI",base_url="https://chatgpt.com/backend-api/codex",wire_api="responses",requires_openai_auth=true,supports_websockets=false}"#;
    let command = format!(
        r#"{} exec --skip-git-repo-check -c 'model_provider="events"' -c 'model_providers.events={provider}' 'say hi'"#,
        codex()
    );
    let tool = Tool { command: command.leak(), answer: "MOCK-OK over events", ..tool };
    let container = tool.run(&tool.agent().annotation("understudy.secrets", "work-chatgpt"));
    let printed = container.exec(&["sh", "-c", "cat /tmp/out /tmp/err"]).unwrap().stdout;
    assert!(printed.contains(tool.answer), "{printed}\n{}", stand().sidecar_log().unwrap());
    let requests = stand().requests("/backend-api/codex/responses").unwrap();
    let compressed =
        |request: &Request| request.method == "POST" && request.header("content-encoding") == Some("zstd");
    assert!(requests.iter().any(compressed), "{requests:?}");
}

/// A full-scope login of Claude Code.
pub(crate) fn claude(name: &'static str) -> Login {
    Login {
        scheme: Scheme::Claude,
        name,
        format: "claude-code",
        like: "claude-account",
        token_path: "/v1/oauth/token",
        tool: Tool {
            harness: "claude-code",
            needs: &[],
            programs: &["claude"],
            command: "claude -p 'say hi'",
            answer: "MOCK-OK from bearer",
            ..Tool::PLAIN
        },
    }
}

/// A login of Codex with ChatGPT.
pub(crate) fn chatgpt(name: &'static str) -> Login {
    let command = format!("{} exec --skip-git-repo-check 'say hi'", codex()).leak();
    Login {
        scheme: Scheme::ChatGpt,
        name,
        format: "codex",
        like: "chatgpt-account",
        token_path: "/oauth/token",
        tool: Tool { harness: "codex", needs: &["codex"], command, answer: "MOCK-OK over", ..Tool::PLAIN },
    }
}

/// The same account, as opencode keeps it.
pub(crate) fn opencode(name: &'static str) -> Login {
    let command = "/opt/opencode/node_modules/opencode-linux-x64/bin/opencode run -m openai/gpt-5.5 'say hi'";
    let command = command.replace("x64", node_arch()).leak();
    Login {
        format: "opencode-openai",
        tool: Tool {
            harness: "opencode",
            needs: &["opencode"],
            command,
            answer: "MOCK-OK over events",
            ..Tool::PLAIN
        },
        ..chatgpt(name)
    }
}

/// A login of Gemini CLI with Google.
pub(crate) fn google(name: &'static str) -> Login {
    Login {
        scheme: Scheme::Google,
        name,
        format: "gemini",
        like: "google-account",
        token_path: "/token",
        tool: Tool { answer: "MOCK-OK at cloudcode-pa.googleapis.com", ..crate::google::GEMINI },
    }
}

#[test]
fn claude_code_answers_with_an_account_of_full_scope_that_is_renewed_all_along() {
    claude("claude").prove();
}

#[test]
fn gemini_cli_answers_with_an_account_of_google_that_is_renewed_all_along() {
    let login = google("google");
    login.prove();
    login.forget();
}
