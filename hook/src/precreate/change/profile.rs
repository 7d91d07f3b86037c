//! The variables once more, for login shells: what `podman exec` starts gets Podman's own configuration, not what was added
//! to it here.

use std::fmt::Write as _;

/// Where distributions look, if the image has the directory.
pub(super) const PATH: &str = "/etc/profile.d/understudy.sh";
/// Its name in `/run/understudy/`.
pub(super) const FILE: &str = "profile.sh";

/// For sh(1). A variable that is set stays.
pub(super) fn text(given: &[(String, String)]) -> String {
    let mut text = String::new();
    for (name, value) in given.iter().filter(|(name, _)| is_name(name)) {
        let quoted = value.replace('\'', "'\\''");
        let _ = writeln!(text, "[ -n \"${{{name}+x}}\" ] || export {name}='{quoted}'");
    }
    text
}

fn is_name(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !name.starts_with(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_shell_reads_each_value_as_it_is_and_keeps_what_is_set() {
        let given = [("A", "it's $HOME `x` \\ \"q\"\nline"), ("B", "ours"), ("C-D", "not a name"), ("E", "")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let script = format!("set -eu\n{}printf '%s|%s|%s' \"$A\" \"$B\" \"$E\"", text(&given));
        let output =
            Command::new("sh").args(["-c", &script]).env_clear().env("B", "theirs").output().unwrap();
        let (out, err) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert_eq!(out, "it's $HOME `x` \\ \"q\"\nline|theirs|", "{err}");
    }
}
