//! Merges `KEY=value` lines: those that are there stay, ours win.

/// Lines of our keys are taken out, with `export` before them or without; ours come at the end.
pub(crate) fn merge(existing: &[u8], ours: &str) -> Vec<u8> {
    let keys: Vec<&str> = ours.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    let is_ours = |line: &[u8]| keys.contains(&key(&String::from_utf8_lossy(line)).as_str());
    let mut kept: Vec<&[u8]> = existing.split(|byte| *byte == b'\n').filter(|line| !is_ours(line)).collect();
    if kept.last().is_some_and(|line| line.is_empty()) {
        kept.pop();
    }
    let lines = kept.into_iter().chain(ours.lines().map(str::as_bytes));
    lines.flat_map(|line| line.iter().copied().chain([b'\n'])).collect()
}

fn key(line: &str) -> String {
    let line = line.trim_start();
    let line = line.strip_prefix("export ").unwrap_or(line);
    line.split_once('=').map_or("", |(key, _)| key.trim()).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(existing: &str, ours: &str) -> String {
        String::from_utf8(merge(existing.as_bytes(), ours)).unwrap()
    }

    #[test]
    fn ours_win_and_theirs_stay() {
        for (existing, wanted) in [
            ("", "KEY='new'\n"),
            ("KEY='new'\n", "KEY='new'\n"),
            ("A=1\nKEY=old\n# note\n", "A=1\n# note\nKEY='new'\n"),
            (" export KEY = old\nKEYS=1", "KEYS=1\nKEY='new'\n"),
            ("# KEY=old\n\nB=2\n", "# KEY=old\n\nB=2\nKEY='new'\n"),
        ] {
            assert_eq!(merged(existing, "KEY='new'"), wanted, "{existing:?}");
        }
    }

    #[test]
    fn again_it_changes_nothing() {
        let once = merged("A=1\n", "KEY=x\nB=y\n");
        assert_eq!(merged(&once, "KEY=x\nB=y\n"), once);
    }
}
