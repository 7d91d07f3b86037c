//! For tests that need a network namespace (and a mount namespace) of their own, and root in it.

use std::process::{Child, Command, Stdio};

const MARK: &str = "UNDERSTUDY_TEST_NETNS";

/// Runs the calling test once more as root of a network namespace of its own and answers `true` there; answers
/// `false` to the caller outside once that has passed. Where it cannot be done the test fails.
pub(crate) fn in_private_netns(test: &str) -> bool {
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    // A test that waits for what never comes fails too.
    let output = Command::new("timeout")
        .args(["--kill-after=5", "120", "unshare", "--map-root-user", "--net", "--mount", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(MARK, "1")
        .output()
        .expect("timeout (coreutils) and unshare (util-linux) are needed");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{test} in a network namespace of its own:\n{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    false
}

/// A process in another network namespace; ended when dropped.
pub(crate) struct Neighbour(Child);

impl Neighbour {
    pub(crate) fn start() -> Self {
        use std::io::Read;
        let mut child = Command::new("unshare")
            .args(["--net", "--", "sh", "-c", "echo; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // One line of output: it is in its namespace now.
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        Self(child)
    }

    pub(crate) fn pid(&self) -> i32 {
        self.0.id() as i32
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
