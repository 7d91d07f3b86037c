//! What tests of several modules share.

use std::path::Path;

use crate::installation::Installation;

/// An installation whose directories would lie in `root`; none of them is made.
pub(crate) fn installation(root: &Path) -> Installation {
    Installation {
        version: env!("CARGO_PKG_VERSION").into(),
        state: root.join("state"),
        runtime: root.join("runtime"),
        configuration: root.join("configuration"),
        homes: vec![root.join("homes/user")],
        nft: "/usr/sbin/nft".into(),
        sidecar_images: Default::default(),
    }
}
