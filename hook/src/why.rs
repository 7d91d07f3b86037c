//! `why`: the reasons of refused starts, newest first.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;

use crate::install::layout::Scope;
use crate::installation::Installation;
use crate::refusals::{self, Note, Said};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// A container's id, the beginning of one, or its name; without it, all are shown
    container: Option<String>,
    /// The installation's state directory, if it is not where `install` puts it
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let state = match &arguments.state {
        Some(state) => state.clone(),
        None => Scope::of_caller().layout()?.state,
    };
    let (text, found) = report(&state, arguments.container.as_deref())?;
    print!("{text}");
    Ok(if found { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn report(state: &Path, container: Option<&str>) -> Result<(String, bool)> {
    let installation = Installation::load(state)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let notes = refusals::all(&installation);
    let wanted = |id: &str, name: Option<&str>| {
        container.is_none_or(|container| id.starts_with(container) || name == Some(container))
    };
    let mut all: Vec<(u64, String)> = notes
        .iter()
        .filter(|note| wanted(note.id.as_str(), note.name.as_deref()))
        .map(|note| (note.time, shown(note, now)))
        .collect();
    for Said { time, id, text } in refusals::said(&installation).iter().filter(|said| wanted(&said.id, None))
    {
        let short = id.get(..12).unwrap_or(id);
        let lines: String = text.lines().map(|line| format!("    {line}\n")).collect();
        let ago = ago(now.saturating_sub(*time));
        all.push((*time, format!("{short}  {ago} ago, a hook of this container said:\n{lines}")));
    }
    if let (Some((time, error)), None) = (refusals::failure(&installation), container) {
        all.push((time, format!("a hook stage failed {} ago\n    {error}\n", ago(now.saturating_sub(time)))));
    }
    // Whoever asks wants to know of the last start, whichever stage stopped it.
    all.sort_by_key(|(time, _)| std::cmp::Reverse(*time));
    let text: String = all.into_iter().map(|(_, text)| printable(&text)).collect();
    if text.is_empty() {
        let whom =
            container.map_or("no container".to_owned(), |container| format!("no container {container:?}"));
        return Ok((format!("{whom} was refused since the last boot\n"), container.is_none()));
    }
    Ok((text, true))
}

/// Names of files and users in an image are the attacker's, and so could be what they make a terminal do.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '?' } else { c }).collect()
}

fn shown(note: &Note, now: u64) -> String {
    let name = note.name.as_deref().map(|name| format!(" ({name})")).unwrap_or_default();
    let id = note.id.short();
    format!(
        "{id}{name}  {} ago\n    refused: {}\n    {}\n",
        ago(now.saturating_sub(note.time)),
        note.reason,
        note.remedy
    )
}

fn ago(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        7200..=172_799 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use understudy_control::{ContainerId, Refusal};

    use super::*;
    use crate::precreate::tests::installation;

    #[test]
    fn a_refusal_is_found_by_id_prefix_and_name_and_not_by_another() {
        let dir = tempfile::tempdir().unwrap();
        let installation = installation(dir.path());
        std::fs::create_dir_all(&installation.state).unwrap();
        installation.save().unwrap();
        let id: ContainerId = "ab".repeat(32).parse().unwrap();
        refusals::note(&installation, &id, Some("agent"), &Refusal::new("because", "do this")).unwrap();
        std::fs::write(refusals::said_by_hooks(&installation, &id).unwrap(), "place: refused\n").unwrap();
        for container in [None, Some("abab"), Some("agent")] {
            let (text, found) = report(&installation.state, container).unwrap();
            assert!(found && text.contains("because") && text.contains("do this"), "{text}");
        }
        assert!(report(&installation.state, Some("abab")).unwrap().0.contains("place: refused"));
        assert!(!report(&installation.state, Some("other")).unwrap().1);
        refusals::note_failure(&installation, &anyhow::anyhow!("not JSON")).unwrap();
        assert!(report(&installation.state, None).unwrap().0.contains("stage failed"));
        assert!(!report(&installation.state, Some("agent")).unwrap().0.contains("stage failed"));
    }

    #[test]
    fn the_newest_comes_first_whichever_stage_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let installation = installation(dir.path());
        std::fs::create_dir_all(&installation.state).unwrap();
        installation.save().unwrap();
        let id: ContainerId = "ab".repeat(32).parse().unwrap();
        refusals::note(&installation, &id, None, &Refusal::new("older", "x")).unwrap();
        let said = refusals::said_by_hooks(&installation, &id).unwrap();
        std::fs::write(&said, "newer\x1b]0;evil\x07\n").unwrap();
        let later = SystemTime::now() + std::time::Duration::from_secs(60);
        std::fs::File::open(&said).unwrap().set_modified(later).unwrap();
        let (text, _) = report(&installation.state, None).unwrap();
        assert!(!text.contains(['\x1b', '\x07']), "{text:?}");
        assert!(text.find("newer").unwrap() < text.find("older").unwrap(), "{text}");
    }

    #[test]
    fn without_an_installation_the_error_names_the_fix() {
        let dir = tempfile::tempdir().unwrap();
        assert!(format!("{:#}", report(dir.path(), None).unwrap_err()).contains("understudy-hook install"));
    }
}
