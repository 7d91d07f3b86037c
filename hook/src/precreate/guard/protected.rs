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
    /// As a message calls it.
    pub(super) what: &'static str,
}

/// Relative to a home directory. Logins of agents are here too: the sidecar has them, and gives stand-ins.
const STORES: [&str; 59] = [
    ".ssh",
    ".aws",
    ".gnupg",
    ".kube",
    ".netrc",
    ".git-credentials",
    ".config/git/credentials",
    ".docker/config.json",
    ".config/containers/auth.json",
    ".config/gh",
    ".config/hub",
    ".config/glab-cli",
    ".config/gcloud",
    ".config/op",
    ".azure",
    ".password-store",
    ".local/share/keyrings",
    ".npmrc",
    ".yarnrc.yml",
    ".pypirc",
    ".cargo/credentials.toml",
    ".cargo/credentials",
    ".terraform.d/credentials.tfrc.json",
    ".vault-token",
    ".mozilla",
    ".config/google-chrome",
    ".config/chromium",
    ".claude/.credentials.json",
    ".codex/auth.json",
    ".gemini/oauth_creds.json",
    ".qwen/oauth_creds.json",
    ".local/share/opencode/auth.json",
    ".vibe/.env",
    ".config/github-copilot",
    ".pgpass",
    ".my.cnf",
    ".boto",
    ".s3cfg",
    ".oci",
    ".databrickscfg",
    ".snowflake",
    ".gem/credentials",
    ".fly/config.yml",
    ".pulumi/credentials.json",
    ".kaggle/kaggle.json",
    ".cache/huggingface/token",
    ".config/doctl",
    ".config/hcloud",
    ".config/heroku",
    ".config/netlify",
    ".config/.wrangler",
    ".local/share/com.vercel.cli",
    ".config/rclone",
    ".config/sops",
    ".config/age",
    ".local/share/kwalletd",
    ".thunderbird",
    ".config/BraveSoftware",
    ".config/microsoft-edge",
];

/// Sockets that are as good as root, or as good as the user.
const ENGINES: [&str; 8] = [
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
    let mut add = |path: &Path, reach, what| all.push(Protected { path: path.to_owned(), reach, what });
    let installation = surroundings.installation;
    let ours = "Understudy's own files";
    for path in [&installation.state, &installation.runtime, &installation.configuration] {
        add(path, Reach::Within, ours);
    }
    for path in surroundings.private {
        add(path, Reach::Within, "what only the sidecar may see");
    }
    for path in [&surroundings.storage.graph_root, &surroundings.storage.run_root] {
        add(path, Reach::Within, "Podman's storage");
    }
    for home in &installation.homes {
        for store in STORES {
            add(&home.join(store), Reach::Within, "credentials");
        }
    }
    for socket in ENGINES {
        add(Path::new(socket), Reach::Within, "a socket that controls the host");
    }
    for path in ["/proc", "/sys", "/etc/shadow", "/etc/gshadow"] {
        add(Path::new(path), Reach::Within, "the host's kernel or accounts");
    }
    for path in ["/", "/dev", "/run", "/var/run", "/run/user", "/tmp"] {
        add(Path::new(path), Reach::Whole, "a directory of the whole host");
    }
    // `/run/user/N`: the runtime directory's parent, for a user's installation.
    if let Some(parent) = installation.runtime.parent() {
        add(parent, Reach::Whole, "the user's runtime directory");
        for socket in ["bus", "podman/podman.sock", "docker.sock", "gnupg", "keyring", "systemd"] {
            add(&parent.join(socket), Reach::Within, "a socket that controls the user's session");
        }
    }
    all
}
