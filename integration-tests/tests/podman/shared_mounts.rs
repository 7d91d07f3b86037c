//! Containers that share something of the host which one of them may write to.

use std::fs;

use understudy_integration_tests::podman::{Container, podman, unique};
use understudy_integration_tests::stand::Agent;

use crate::stand;

fn notes(container: &Container) -> Vec<String> {
    let status = stand().operator(&["status", "--json"]).unwrap().success().unwrap();
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let all = status["containers"].as_array().unwrap();
    let one = all.iter().find(|one| one["name"] == container.name).unwrap();
    one["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap().to_owned()).collect()
}

#[test]
fn who_is_given_something_else_is_told_with_whom_it_shares_a_mount() {
    stand();
    let directory = tempfile::tempdir().unwrap();
    let path = |below: &str| directory.path().join(below).display().to_string();
    fs::create_dir_all(path("project/sub")).unwrap();
    fs::write(path("project/file"), "").unwrap();
    std::os::unix::fs::symlink("project", path("link")).unwrap();
    fs::create_dir(path("elsewhere")).unwrap();
    let volume = unique("volume");
    let having =
        |source: &str, options: &str| Agent::generic().option(&format!("-v={source}:/work{options}"));
    let first = having(&path("project"), "").option(&format!("-v={volume}:/data"));
    let first = first.start(&["sleep", "infinity"]).unwrap();
    let other = |source: &str, options: &str| {
        having(source, options)
            .annotation("understudy.allow", "a.example")
            .start(&["sleep", "infinity"])
            .unwrap()
    };
    let said =
        format!("with {}, which has another understudy.allow: what either may do, both may", first.name);
    for (source, options, name) in [
        (path("project"), "", path("project")),
        (path("project"), ":ro", path("project")),
        (path("link/sub"), "", path("link/sub")),
        (path("project/file"), "", path("project/file")),
        (volume.clone(), "", format!("volume {volume}")),
    ] {
        let second = other(&source, options);
        let told = format!("it shares {name} {said}");
        assert!(notes(&second).contains(&told), "{source}: {:?}", notes(&second));
        let inside = second.exec(&["sh", "-c", "tr '\\0' '\\n' </proc/1/environ"]).unwrap();
        assert!(inside.stdout.contains(&told), "{}", inside.text());
    }
    let shares = |container: &Container| notes(container).iter().any(|note| note.contains("it shares"));
    assert!(!shares(&other(&path("elsewhere"), "")) && !shares(&first));
    assert!(!shares(&having(&path("project"), "").start(&["sleep", "infinity"]).unwrap()));
    drop(first);
    let _ = podman(["volume", "rm", "--force", &volume]);
}
