//! What no agent's container may see of the host.

use std::path::{Path, PathBuf};

use super::Surroundings;

/// How far the protection of a path goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// The path, what lies in it, and what it lies in.
    Within,
    /// The path and what it lies in; a mount of something below it is judged by itself.
    Whole,
}

#[derive(Debug)]
pub(super) struct Protected {
    pub(super) path: PathBuf,
    pub(super) reach: Reach,
    /// As a message calls it, and what to do instead of the mount.
    pub(super) what: &'static str,
    pub(super) instead: &'static str,
}

/// What lies in a home directory.
struct Store {
    what: &'static str,
    instead: &'static str,
    paths: &'static [&'static str],
}

const PROJECT: &str = "mount only the directory that the agent works on";

const STORES: [Store; 7] = [
    Store {
        what: "credentials of a login or a service",
        instead: "declare it as a secret of the sidecar's: the container gets a stand-in (docs/secrets.md)",
        paths: &[
            ".aws",
            ".azure",
            ".config/gcloud",
            ".boto",
            ".oci",
            ".aliyun",
            ".bluemix",
            ".config/doctl",
            ".config/hcloud",
            ".config/scw",
            ".config/linode-cli",
            ".config/heroku",
            ".config/netlify",
            ".config/.wrangler",
            ".local/share/com.vercel.cli",
            ".config/stripe",
            ".config/configstore",
            ".config/ngrok",
            ".fly/config.yml",
            ".railway",
            ".supabase",
            ".kube",
            ".docker",
            ".config/containers/auth.json",
            ".netrc",
            ".git-credentials",
            ".config/git/credentials",
            ".config/gh",
            ".config/hub",
            ".config/glab-cli",
            ".config/github-copilot",
            ".npmrc",
            ".yarnrc.yml",
            ".pypirc",
            ".config/pypoetry/auth.toml",
            ".cargo/credentials.toml",
            ".cargo/credentials",
            ".gem/credentials",
            ".bundle/config",
            ".composer/auth.json",
            ".config/composer/auth.json",
            ".m2/settings.xml",
            ".gradle/gradle.properties",
            ".nuget/NuGet/NuGet.Config",
            ".terraform.d/credentials.tfrc.json",
            ".terraformrc",
            ".vault-token",
            ".pulumi/credentials.json",
            ".databrickscfg",
            ".snowflake",
            ".kaggle/kaggle.json",
            ".cache/huggingface/token",
            ".pgpass",
            ".my.cnf",
            ".s3cfg",
            ".config/rclone",
        ],
    },
    Store {
        what: "an agent's login",
        instead: "declare the login as a secret of the sidecar's: the container gets a login of stand-ins (docs/harnesses.md)",
        paths: &[
            ".claude/.credentials.json",
            ".codex/auth.json",
            ".gemini/oauth_creds.json",
            ".qwen/oauth_creds.json",
            ".local/share/opencode/auth.json",
            ".vibe/.env",
        ],
    },
    Store {
        what: "an agent's login as it was before `login import --write-back`",
        instead: "delete it, once the sidecar's account works (docs/logins.md)",
        paths: &[
            ".claude/.credentials.json.previous",
            ".claude/.credentials.json.keeping",
            ".codex/auth.json.previous",
            ".codex/auth.json.keeping",
            ".gemini/oauth_creds.json.previous",
            ".gemini/oauth_creds.json.keeping",
            ".qwen/oauth_creds.json.previous",
            ".qwen/oauth_creds.json.keeping",
            ".local/share/opencode/auth.json.previous",
            ".local/share/opencode/auth.json.keeping",
            ".vibe/.env.previous",
            ".vibe/.env.keeping",
        ],
    },
    Store {
        what: "keys",
        instead: "give the key to the sidecar as a secret, or leave what needs it to the host (docs/secrets.md)",
        paths: &[".ssh", ".gnupg", ".config/sops", ".config/age", ".pki", ".cert"],
    },
    Store {
        what: "passwords",
        instead: "declare the one that the agent needs as a secret of the sidecar's (docs/secrets.md)",
        paths: &[
            ".password-store",
            ".local/share/gopass",
            ".local/share/keyrings",
            ".local/share/kwalletd",
            ".config/op",
            ".config/1Password",
            ".config/Bitwarden",
            ".config/Bitwarden CLI",
            ".config/keepassxc",
        ],
    },
    Store {
        what: "sessions of browsers and programs with accounts",
        instead: "give a browser in the container a profile of its own",
        paths: &[
            ".mozilla",
            ".config/mozilla",
            ".thunderbird",
            ".config/google-chrome",
            ".config/google-chrome-beta",
            ".config/chromium",
            ".config/BraveSoftware",
            ".config/microsoft-edge",
            ".config/vivaldi",
            ".config/opera",
            ".config/Slack",
            ".config/Signal",
            ".config/discord",
            ".var/app",
            "snap",
        ],
    },
    Store {
        what: "the right to use the screen",
        instead: "run programs with windows outside, or with a display server of the container's own (Xvfb)",
        paths: &[".Xauthority", ".ICEauthority"],
    },
];

/// Sockets that are as good as root, or as good as the user.
const ENGINES: [&str; 9] = [
    "/tmp/.X11-unix",
    "/run/podman/podman.sock",
    "/var/run/docker.sock",
    "/run/docker.sock",
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/dbus/system_bus_socket",
    "/run/systemd/private",
    "/run/buildkit/buildkitd.sock",
];

pub(super) fn all(surroundings: &Surroundings<'_>) -> Vec<Protected> {
    let mut all = Vec::new();
    let mut add = |path: &Path, reach, what, instead| {
        all.push(Protected { path: path.to_owned(), reach, what, instead });
    };
    let installation = surroundings.installation;
    let ours = "Understudy's own files";
    for path in [&installation.state, &installation.runtime, &installation.configuration] {
        add(path, Reach::Within, ours, PROJECT);
    }
    for path in surroundings.private {
        add(path, Reach::Within, "what only the sidecar may see", PROJECT);
    }
    for path in [&surroundings.storage.graph_root, &surroundings.storage.run_root] {
        add(path, Reach::Within, "Podman's storage", "use a named volume");
    }
    for home in &installation.homes {
        for Store { what, instead, paths } in STORES {
            for path in paths {
                add(&home.join(path), Reach::Within, what, instead);
            }
        }
        add(home, Reach::Whole, "a whole home directory", PROJECT);
    }
    let service = "leave what needs it to the host, or run the service in a container of its own";
    for socket in ENGINES {
        add(Path::new(socket), Reach::Within, "a socket that controls the host", service);
    }
    for path in ["/proc", "/sys", "/etc/shadow", "/etc/gshadow"] {
        add(Path::new(path), Reach::Within, "the host's kernel or accounts", PROJECT);
    }
    for path in ["/", "/dev", "/run", "/var/run", "/run/user", "/tmp", "/home", "/root", "/var", "/etc"] {
        add(Path::new(path), Reach::Whole, "a directory of the whole host", PROJECT);
    }
    // `/run/user/N`: the runtime directory's parent, for a user's installation.
    if let Some(parent) = installation.runtime.parent() {
        add(parent, Reach::Whole, "the user's runtime directory", PROJECT);
        for socket in ["bus", "podman/podman.sock", "docker.sock", "gnupg", "keyring", "systemd"] {
            add(&parent.join(socket), Reach::Within, "a socket that controls the user's session", service);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_store_is_named_once_and_below_a_home() {
        let paths: Vec<_> = STORES.iter().flat_map(|store| store.paths).collect();
        assert_eq!(paths.iter().collect::<BTreeSet<_>>().len(), paths.len());
        assert!(paths.iter().all(|path| !path.starts_with('/') && !path.contains("..")));
        for wanted in [".ssh", ".aws", ".config/gcloud", ".kube", ".docker", ".netrc", ".mozilla", ".gnupg"] {
            assert!(paths.contains(&&wanted), "{wanted}");
        }
        let logins = STORES.iter().find(|store| store.what == "an agent's login").unwrap();
        for login in logins.paths {
            for kept in [format!("{login}.previous"), format!("{login}.keeping")] {
                assert!(paths.iter().any(|path| **path == kept), "{kept}");
            }
        }
    }
}
