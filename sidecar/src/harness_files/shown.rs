//! What a descriptor comes to, for a person or as JSON.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use understudy_harnesses::{
    Adapter, Descriptor, Login, Moved, NamedHost, PlacedFile, Purpose, Trap, TrapAction, Write,
};

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Shown {
    name: String,
    description: String,
    proven: Vec<String>,
    /// Why no version was run with it.
    unproven: Option<String>,
    smoke: Vec<String>,
    /// Whatever the login and the level.
    always: Sets,
    logins: Vec<ShownLogin>,
    privacy: BTreeMap<String, ShownLevel>,
    default_privacy: String,
    /// Hosts by purpose, whether or not they are allowed.
    hosts: BTreeMap<&'static str, Vec<String>>,
    /// By which answers hosts are allowed, within which.
    named_hosts: BTreeMap<String, Vec<String>>,
    /// Variables with which no container starts, or only with a note.
    refuses: Vec<Variable>,
    notes: Vec<Variable>,
    /// Files that must hold nothing but stand-ins, with the places in them.
    login_files: BTreeMap<String, Vec<String>>,
    /// Variables that move some of these files.
    moved: Vec<ShownMove>,
    /// Files that instructions become a block of.
    instructions: Vec<String>,
    /// How an editor starts it.
    acp: Vec<ShownAdapter>,
}

#[derive(Debug, Serialize)]
struct ShownAdapter {
    command: Vec<String>,
    package: Option<String>,
    proven: Vec<String>,
}

/// Stand-ins are written as in the descriptor: `{stand-in}`.
#[derive(Debug, Serialize)]
struct Sets {
    env: BTreeMap<String, String>,
    files: Vec<File>,
}

#[derive(Debug, Serialize)]
struct File {
    path: String,
    /// As in the shell: `600`.
    mode: String,
    write: &'static str,
    content: String,
}

#[derive(Debug, Serialize)]
struct ShownLogin {
    name: String,
    /// The kind of secret that fits, and the host that it is bound to.
    kind: &'static str,
    host: String,
    sets: Sets,
    /// What `harness-only` allows with it beside what it allows at any level.
    allows: Vec<String>,
    refuses: Vec<Variable>,
    notes: Vec<Variable>,
}

#[derive(Debug, Serialize)]
struct ShownLevel {
    sets: Sets,
    /// What `harness-only` allows, but for what a login adds.
    allows: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Variable {
    env: String,
    why: String,
}

fn named_host(named: &NamedHost) -> (String, Vec<String>) {
    let within = named.within.iter().map(|host| host.0.to_string()).collect();
    (format!("{} {}", named.endpoint, named.field), within)
}

impl Shown {
    pub(super) fn new(harness: &Descriptor) -> Self {
        let level = |name: &String| ShownLevel {
            sets: Sets {
                env: harness.privacy(name).flat_map(|level| level.env.clone()).collect(),
                files: files(harness.privacy(name).flat_map(|level| &level.files)),
            },
            allows: harness.allowed_hosts(None, name).map(|host| host.to_string()).collect(),
        };
        let of_purpose = |purpose: Purpose| {
            let hosts: Vec<_> = harness.hosts.of(purpose).iter().map(|host| host.0.to_string()).collect();
            (!hosts.is_empty()).then_some((purpose.as_str(), hosts))
        };
        let places = harness.login_files.iter().map(|file| (file.path.clone(), file.pointers.clone()));
        Self {
            name: harness.name.clone(),
            description: harness.description.clone(),
            proven: harness.proven.clone(),
            unproven: harness.unproven.clone(),
            smoke: harness.smoke.clone(),
            always: Sets { env: harness.env.clone(), files: files(&harness.files) },
            logins: harness.logins.iter().map(ShownLogin::new).collect(),
            privacy: harness.privacy.levels.keys().map(|name| (name.clone(), level(name))).collect(),
            default_privacy: harness.privacy.default.clone(),
            hosts: Purpose::ALL.into_iter().filter_map(of_purpose).collect(),
            named_hosts: harness.named_hosts.iter().map(named_host).collect(),
            refuses: variables(&harness.traps, TrapAction::Refuse),
            notes: variables(&harness.traps, TrapAction::Note),
            login_files: places.collect(),
            moved: harness.moved.iter().map(ShownMove::new).collect(),
            instructions: harness.instructions.clone(),
            acp: harness.acp.iter().map(ShownAdapter::new).collect(),
        }
    }
}

/// As it is in the descriptor.
#[derive(Debug, Serialize)]
struct ShownMove {
    by: String,
    from: String,
    to: String,
}

impl ShownMove {
    fn new(moved: &Moved) -> Self {
        Self { by: moved.by.clone(), from: moved.from.clone(), to: moved.to.clone() }
    }
}

impl ShownAdapter {
    fn new(adapter: &Adapter) -> Self {
        let Adapter { command, package, proven } = adapter.clone();
        Self { command, package, proven }
    }
}

impl fmt::Display for ShownAdapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "for editors (Agent Client Protocol): {}", self.command.join(" "))?;
        if let Some(package) = &self.package {
            write!(f, ", which comes in {package}")?;
        }
        match self.proven.as_slice() {
            [] => writeln!(f, "; it was not run"),
            proven => writeln!(f, "; proven with {}", proven.join(", ")),
        }
    }
}

impl ShownLogin {
    fn new(login: &Login) -> Self {
        let env = login.env.iter().map(|(name, value)| (name.clone(), value.source().to_owned()));
        Self {
            name: login.name.clone(),
            kind: login.kind.as_str(),
            host: login.host.to_string(),
            sets: Sets { env: env.collect(), files: files(&login.files) },
            allows: login.hosts.iter().map(|host| host.0.to_string()).collect(),
            refuses: variables(&login.traps, TrapAction::Refuse),
            notes: variables(&login.traps, TrapAction::Note),
        }
    }
}

fn files<'a>(files: impl IntoIterator<Item = &'a PlacedFile>) -> Vec<File> {
    let file = |file: &PlacedFile| File {
        path: file.path.clone(),
        mode: format!("{:o}", file.mode),
        write: match file.write {
            Write::Create => "create",
            Write::Replace => "replace",
            Write::MergeJson => "merge-json",
            Write::FillToml => "fill-toml",
            Write::MergeEnv => "merge-env",
        },
        content: file.content.source().trim_end().to_owned(),
    };
    files.into_iter().map(file).collect()
}

fn variables(traps: &[Trap], action: TrapAction) -> Vec<Variable> {
    let of_action = traps.iter().filter(|trap| trap.action == action);
    of_action.map(|trap| Variable { env: trap.env.clone(), why: trap.why.clone() }).collect()
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.name, self.description)?;
        match &self.unproven {
            None => writeln!(f, "proven with: {}", self.proven.join(", "))?,
            Some(why) => writeln!(f, "unproven: {why}")?,
        }
        if !self.smoke.is_empty() {
            writeln!(f, "smoke command: {}", self.smoke.join(" "))?;
        }
        writeln!(f, "always:")?;
        self.always.fmt(f)?;
        variable_lines(f, "refuses to start with", &self.refuses)?;
        variable_lines(f, "notes", &self.notes)?;
        for login in &self.logins {
            writeln!(f, "login {} (a secret of kind {} for {}):", login.name, login.kind, login.host)?;
            login.sets.fmt(f)?;
            allow_line(f, &login.allows)?;
            variable_lines(f, "refuses to start with", &login.refuses)?;
            variable_lines(f, "notes", &login.notes)?;
        }
        for (name, level) in &self.privacy {
            let default = if *name == self.default_privacy { " (the default)" } else { "" };
            writeln!(f, "privacy {name}{default}:")?;
            level.sets.fmt(f)?;
            allow_line(f, &level.allows)?;
        }
        for (answer, within) in &self.named_hosts {
            writeln!(f, "allows what {answer} names, within: {}", within.join(", "))?;
        }
        for (path, pointers) in &self.login_files {
            writeln!(f, "refuses a real credential in {path}: {}", pointers.join(", "))?;
        }
        for ShownMove { by, from, to } in &self.moved {
            let to = if to.is_empty() { String::new() } else { format!("/{to}") };
            writeln!(f, "moves with {by}: {from} to ${by}{to}")?;
        }
        for path in &self.instructions {
            writeln!(f, "instructions: a block of {path}")?;
        }
        for adapter in &self.acp {
            adapter.fmt(f)?;
        }
        for (purpose, hosts) in &self.hosts {
            writeln!(f, "hosts for {purpose}: {}", hosts.join(", "))?;
        }
        Ok(())
    }
}

impl fmt::Display for Sets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.env {
            writeln!(f, "  sets {name}={value}")?;
        }
        for File { path, mode, write, content } in &self.files {
            writeln!(f, "  writes {path} ({write}, {mode}):")?;
            for line in content.lines() {
                writeln!(f, "    {line}")?;
            }
        }
        Ok(())
    }
}

fn allow_line(f: &mut fmt::Formatter<'_>, hosts: &[String]) -> fmt::Result {
    if hosts.is_empty() { Ok(()) } else { writeln!(f, "  harness-only allows {}", hosts.join(", ")) }
}

fn variable_lines(f: &mut fmt::Formatter<'_>, what: &str, variables: &[Variable]) -> fmt::Result {
    variables.iter().try_for_each(|Variable { env, why }| writeln!(f, "  {what} {env}: {why}"))
}

#[cfg(test)]
mod tests {
    use understudy_harnesses::Harnesses;

    use super::*;

    fn shown(name: &str) -> Shown {
        Shown::new(Harnesses::default().harness(name).unwrap())
    }

    #[test]
    fn a_person_sees_what_is_set_allowed_and_refused() {
        let text = shown("gemini-cli").to_string();
        for line in [
            "proven with: 0.61.0\n",
            "smoke command: gemini -p say hi\n",
            "  sets GEMINI_CLI_TRUST_WORKSPACE=true\n",
            "login api-key (a secret of kind api-key for generativelanguage.googleapis.com):\n  sets GEMINI_API_KEY={stand-in}\n",
            "  refuses to start with GOOGLE_API_KEY: it is another key",
            "privacy strict (the default):\n  writes ~/.gemini/settings.json (merge-json, 600):\n",
            "  harness-only allows generativelanguage.googleapis.com\n",
            "  harness-only allows play.googleapis.com\n",
            "refuses a real credential in ~/.gemini/oauth_creds.json: /access_token, /refresh_token, /id_token\n",
            "moves with GEMINI_CLI_HOME: ~/.gemini to $GEMINI_CLI_HOME/.gemini\n",
            "instructions: a block of ~/.gemini/GEMINI.md\n",
            "for editors (Agent Client Protocol): gemini --acp; proven with 0.61.0\n",
        ] {
            assert!(text.contains(line), "{text}\nexpected {line}");
        }
        assert!(shown("goose").to_string().contains("\nunproven: it is in no package registry"));
    }

    #[test]
    fn the_same_is_there_as_json() {
        let json = serde_json::to_value(shown("opencode")).unwrap();
        let login = &json["logins"][1];
        assert_eq!(
            (login["name"].as_str(), login["allows"][0].as_str()),
            (Some("openai"), Some("api.openai.com"))
        );
        assert_eq!(json["default-privacy"], "strict");
        assert_eq!(json["privacy"]["strict"]["allows"], serde_json::json!([]));
        assert_eq!(json["refuses"][0]["env"], "OPENCODE_AUTH_CONTENT");
    }
}
