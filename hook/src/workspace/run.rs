//! Settings by which git runs a program.

use std::ffi::OsStr;

use super::config::Entry;
use super::protected::matches;

/// Assignments by which git runs a program, or reads a configuration from elsewhere: section, key (git-config(1)). A `*`
/// stands for anything.
const RUN: [(&str, &str); 47] = [
    ("core", "fsmonitor"),
    ("core", "hookspath"),
    ("core", "sshcommand"),
    ("core", "gitproxy"),
    ("core", "editor"),
    ("core", "pager"),
    ("core", "askpass"),
    ("core", "alternaterefscommand"),
    ("core", "worktree"),
    ("sequence", "editor"),
    ("filter", "clean"),
    ("filter", "smudge"),
    ("filter", "process"),
    ("diff", "external"),
    ("diff", "command"),
    ("diff", "textconv"),
    ("merge", "driver"),
    ("mergetool", "*"),
    ("difftool", "*"),
    ("interactive", "difffilter"),
    ("credential", "helper"),
    ("gpg", "program"),
    ("gpg", "defaultkeycommand"),
    ("remote", "uploadpack"),
    ("remote", "receivepack"),
    ("remote", "vcs"),
    ("uploadpack", "packobjectshook"),
    ("protocol", "allow"),
    ("include", "path"),
    ("includeif", "path"),
    ("trailer", "command"),
    ("trailer", "cmd"),
    ("hook", "command"),
    ("browser", "*"),
    ("man", "*"),
    ("sendemail", "*cmd"),
    ("sendemail", "smtpserver"),
    ("init", "templatedir"),
    ("gc", "recentobjectshook"),
    ("tar", "command"),
    ("imap", "tunnel"),
    ("guitool", "cmd"),
    ("instaweb", "httpd"),
    ("lfs", "path"),
    ("lfs", "clean"),
    ("lfs", "smudge"),
    ("lfs", "standalonetransferagent"),
];

pub(super) fn runs(entry: &Entry) -> bool {
    let Entry { key, value, .. } = entry;
    let section = &*entry.section;
    // `git lfs install` writes these into many repositories.
    let lfs = section == "filter" && &*entry.subsection == "lfs" && value.starts_with("git-lfs ");
    // git's own monitor is no other program.
    let own_monitor = key == "fsmonitor" && ["true", "false"].contains(&value.as_str());
    let listed = RUN.iter().any(|(run, pattern)| section == *run && matches(pattern, OsStr::new(key)));
    let command = ["alias", "pager"].contains(&section) && (section == "pager" || value.starts_with('!'));
    let update = section == "submodule" && key == "update" && value.starts_with('!');
    (listed && !lfs && !own_monitor) || command || update
}

/// What a command may name: its words, as a shell would tell them apart at the most.
pub(super) fn words(command: &str) -> impl Iterator<Item = &str> {
    let apart = |c: char| c.is_whitespace() || "\"'`;|&()<>={}!,".contains(c);
    command.split(apart).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::config;
    use super::*;

    #[test]
    fn what_a_command_names_is_told_apart() {
        let found: Vec<_> = words("!f() { ./a.sh \"tools/b c\" --config=x; }; f").collect();
        assert_eq!(found, ["f", "./a.sh", "tools/b", "c", "--config", "x", "f"]);
    }

    #[test]
    fn settings_that_run_something_are_told_from_others() {
        let text = "[core]\nsshCommand = x\nbare\n[filter \"lfs\"]\nclean = git-lfs clean\n[alias]\na = !x\nb = log\n\
            [lfs]\nurl = x\nstandalonetransferagent = t\n[lfs \"customtransfer.t\"]\npath = x\n[lfs \"extension.e\"]\nclean = x\n";
        let entries = config::parse(text.as_bytes()).unwrap();
        let found: Vec<_> = entries.iter().filter(|entry| runs(entry)).map(Entry::name).collect();
        assert_eq!(
            found,
            [
                "core.sshcommand",
                "alias.a",
                "lfs.standalonetransferagent",
                "lfs.customtransfer.t.path",
                "lfs.extension.e.clean"
            ]
        );
    }
}
