//! Devices by number, never by the path that the container sees: `--device=/dev/sda:/dev/null` names one thing and is
//! another.

use oci_spec::runtime::{LinuxDeviceType, Spec};
use understudy_control::Refusal;

use super::super::host::{Host, Kind};
use super::shown;

/// null, zero, full, random, urandom, tty, console, ptmx, fuse (Documentation/admin-guide/devices.txt).
const ALLOWED: [(u32, u32); 9] = [(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 1), (5, 2), (10, 229)];

/// Drivers of graphics processors and other accelerators; some have a major number that the kernel chooses.
const DRIVERS: [&str; 3] = ["drm", "kfd", "accel"];

pub(super) fn check(spec: &Spec, host: &dyn Host) -> Result<(), Refusal> {
    for device in spec.linux().as_ref().and_then(|linux| linux.devices().as_ref()).into_iter().flatten() {
        let number = u32::try_from(device.major()).ok().zip(u32::try_from(device.minor()).ok());
        let allowed = match (device.typ(), number) {
            (LinuxDeviceType::C | LinuxDeviceType::U, Some((major, minor))) => {
                permitted(Kind::CharacterDevice(major, minor), host)
            }
            (LinuxDeviceType::P, _) => true,
            _ => false,
        };
        if !allowed {
            return Err(refused(&shown(device.path())));
        }
    }
    Ok(())
}

/// Whether a device may be in a container; also for devices that come as bind mounts, as they do without root.
pub(super) fn permitted(kind: Kind, host: &dyn Host) -> bool {
    match kind {
        Kind::CharacterDevice(major, minor) => {
            ALLOWED.contains(&(major, minor))
                || host
                    .driver(major)
                    .is_some_and(|name| DRIVERS.contains(&name.as_str()) || name.starts_with("nvidia"))
        }
        Kind::BlockDevice(..) | Kind::Socket => false,
        Kind::Plain => true,
    }
}

pub(super) fn refused(path: &str) -> Refusal {
    Refusal::new(format!("device {path} is not allowed (--device)"), format!("remove --device={path}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::tests::{Tree, config_of};

    fn with(device: serde_json::Value) -> bool {
        let tree = Tree::new();
        let mut document = tree.config().document;
        document["linux"]["devices"] = json!([device]);
        tree.check(&config_of(&document)).is_ok()
    }

    #[test]
    fn harmless_devices_pass_and_others_do_not_whatever_their_path() {
        assert!(with(json!({"path": "/dev/anything", "type": "c", "major": 1, "minor": 3})));
        assert!(with(json!({"path": "/dev/fuse", "type": "c", "major": 10, "minor": 229})));
        assert!(!with(json!({"path": "/dev/null", "type": "c", "major": 1, "minor": 1})), "mem");
        assert!(!with(json!({"path": "/dev/null", "type": "b", "major": 1, "minor": 3})), "ram disk");
        assert!(!with(json!({"path": "/dev/null", "type": "b", "major": 8, "minor": 0})), "sda");
        assert!(!with(json!({"path": "/dev/net/tun", "type": "c", "major": 10, "minor": 200})));
        assert!(!with(json!({"path": "/dev/kvm", "type": "c", "major": 10, "minor": 232})));
        assert!(!with(json!({"path": "/dev/vhost-vsock", "type": "c", "major": 10, "minor": 241})));
        assert!(!with(json!({"path": "/dev/null", "type": "c", "major": -1, "minor": 3})));
    }
}
