//! Whether containers may read what is mounted into them, where SELinux decides (docs/hosts.md).

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use rustix::io::Errno;

use super::Check;
use crate::installation::Installation;

/// Read and executed by every container: `container.te` of container-selinux, `allow container_domain container_ro_file_t:file`.
const READABLE: &str = "container_ro_file_t";

/// `None` where the kernel has no SELinux.
pub(crate) fn check(installation: &Installation) -> Option<Check> {
    if !Path::new("/sys/fs/selinux/enforce").exists() {
        return None;
    }
    let mounted = [installation.guest_binary_directory(), installation.containers()];
    let judged = mounted.iter().try_for_each(|path| match label(path) {
        Ok(Some(label)) => judge(path, &label),
        // made when the first container starts
        Ok(None) => Ok(()),
        Err(error) => Err(error),
    });
    Some(Check::new("SELinux: containers may read what is mounted into them", judged))
}

/// `security.selinux`; `None` of a path that does not exist.
fn label(path: &Path) -> Result<Option<String>> {
    let mut bytes = [0_u8; 4096];
    match rustix::fs::lgetxattr(path, "security.selinux", &mut bytes[..]) {
        Ok(length) => {
            let bytes = bytes.get(..length).unwrap_or_default();
            Ok(Some(String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned()))
        }
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error).with_context(|| format!("{}: its SELinux label", path.display())),
    }
}

/// `user:role:type:level[:categories]`: a file with categories is one container's alone.
fn judge(path: &Path, label: &str) -> Result<()> {
    let parts: Vec<&str> = label.splitn(4, ':').collect();
    let &[_, _, kind, level] = parts.as_slice() else {
        bail!("{}: {label:?} is no SELinux label", path.display());
    };
    if [READABLE, "container_file_t"].contains(&kind) && level == "s0" {
        return Ok(());
    }
    bail!(
        "{0} is labelled {label}, so SELinux keeps it from containers and none will start (run: chcon -R -t {READABLE} -l s0 {0})",
        path.display()
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_every_container_may_read_is_well() {
        let judge = |label| judge(Path::new("/guest"), label);
        judge("system_u:object_r:container_ro_file_t:s0").unwrap();
        judge("unconfined_u:object_r:container_file_t:s0").unwrap();
        for other in [
            "unconfined_u:object_r:data_home_t:s0",
            "unconfined_u:object_r:user_tmp_t:s0",
            "system_u:object_r:container_file_t:s0:c1,c2",
            "system_u:object_r:container_ro_file_t",
            "",
        ] {
            let error = judge(other).unwrap_err().to_string();
            assert!(error.contains("/guest") && error.contains(other), "{error}");
        }
        let error = judge("u:r:user_tmp_t:s0").unwrap_err().to_string();
        assert!(error.contains("chcon -R -t container_ro_file_t -l s0 /guest"), "{error}");
    }

    #[test]
    fn a_path_that_is_not_there_has_no_label() {
        assert_eq!(label(Path::new("/nonexistent/path")).unwrap(), None);
    }
}
