//! What a container gives away: a descriptor of its project's directory is worth nothing to another container once it has ended,
//! and its guards with it.

use std::fs;

use understudy_integration_tests::podman::{podman, until};
use understudy_integration_tests::stand::Agent;

use super::Project;
use crate::stand;

const GIVER: &str = "
import os, socket, time
server = socket.socket(socket.AF_UNIX); server.bind('/meet/socket'); server.listen()
peer, _ = server.accept()
socket.send_fds(peer, [b'x'], [os.open('/p', os.O_PATH), os.open('/p/work/.git', os.O_RDONLY)])
time.sleep(1000)
";

/// Holds a file open for writing by what it was given, if `HOLD` is; the mount cannot become read-only meanwhile.
const TAKER: &str = "
import os, socket, time
peer = socket.socket(socket.AF_UNIX)
open('/meet/ready', 'w').close()
while peer.connect_ex('/meet/socket'): time.sleep(.01)
_, (whole, git), _, _ = socket.recv_fds(peer, 1, 2)
held = os.open('work/file', os.O_WRONLY, dir_fd=whole) if HOLD else None
open('/meet/taken', 'w').close()
while not os.path.exists('/meet/go'): time.sleep(.01)
told = []
for at, path in ((whole, 'work/.git/hooks/post-checkout'), (whole, 'work/.git/config'), (whole, 'work/.envrc'), (git, 'hooks/x'), (git, 'config')):
    try:
        os.write(os.open(path, os.O_WRONLY | os.O_CREAT, 0o755, dir_fd=at), b'evil')
        told.append(path + ' was written')
    except OSError as error: told.append(f'{path}: {error.strerror}')
open('/meet/told.new', 'w').write('\\n'.join(told)); os.rename('/meet/told.new', '/meet/told')
time.sleep(1000)
";

#[test]
fn what_a_container_gave_to_another_writes_nothing_once_it_has_ended() {
    stand();
    for hold in ["False", "True"] {
        let project = Project::new();
        let meet = tempfile::tempdir_in(std::env::var("HOME").unwrap()).unwrap();
        let shared = format!("--volume={}:/meet", meet.path().display());
        let there = |name: &str| until(name, || Ok(meet.path().join(name).exists())).unwrap();
        // A socket that is there at the start would be refused.
        let taker = TAKER.replace("HOLD", hold);
        let taker = Agent::generic().option(&shared).start(&["python3", "-c", &taker]).unwrap();
        there("ready");
        let giver = project.agent().option(&shared).start(&["python3", "-c", GIVER]).unwrap();
        let taken = until("taken", || Ok(meet.path().join("taken").exists()));
        taken.unwrap_or_else(|error| panic!("{error:#} {:?} {:?}", taker.logs(), giver.logs()));
        podman(["kill", &giver.name]).unwrap().success().unwrap();
        podman(["wait", &giver.name]).unwrap();
        // Longer than the hook's process takes to be gone, if nothing keeps it.
        std::thread::sleep(std::time::Duration::from_secs(1));
        fs::write(meet.path().join("go"), "").unwrap();
        there("told");
        let told = fs::read_to_string(meet.path().join("told")).unwrap();
        assert!(!told.contains("was written") && told.lines().count() == 5, "{hold}: {told}");
        assert!(!project.work().join(".git/hooks/post-checkout").exists(), "{told}");
        drop(taker);
    }
}
