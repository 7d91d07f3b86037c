//! `understudy env HARNESS`: what a container of a harness is given in its environment, as a file for `--env-file`,
//! `EnvironmentFile=` and `podman exec --env-file`.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Result, bail};
use understudy_control::guest::{JAVA, TRUST};
use understudy_control::{Prepare, Refusal, User, annotation};

use crate::config::Directories;
use crate::configuration::{Configuration, Live, Remember};
use crate::credentials::Surroundings;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// As in `understudy.harness`
    harness: String,
    /// As in `understudy.secrets`
    #[arg(long, value_name = "NAMES")]
    secrets: Option<String>,
    /// As in `understudy.privacy`
    #[arg(long, value_name = "LEVEL")]
    privacy: Option<String>,
    #[command(flatten)]
    directories: Directories,
}

/// Stand-ins are the same for every container of the installation, so that the file can be written once. It gives nothing
/// to a container that the sidecar does not grant the secret.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let live = Live::load(&arguments.directories, Surroundings::of_this_process(), Remember::Key)?;
    print!("{}", text(&live.current(), arguments)?);
    Ok(ExitCode::SUCCESS)
}

fn text(configuration: &Configuration, arguments: &Arguments) -> Result<String> {
    let asked = [
        (annotation::HARNESS, Some(&arguments.harness)),
        (annotation::SECRETS, arguments.secrets.as_ref()),
        (annotation::PRIVACY, arguments.privacy.as_ref()),
    ];
    let asked = asked.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.clone())));
    let terms = configuration
        .terms(&nobody(asked.collect())?)
        .map_err(|Refusal { reason, remedy, .. }| anyhow::anyhow!("{reason} ({remedy})"))?;
    let given = terms.env.iter().map(|variable| (variable.name.as_str(), variable.value.as_str()));
    let mut text = String::new();
    for (name, value) in given.chain(TRUST).chain([JAVA]) {
        if value.contains('\n') {
            bail!("{name} has more than one line, which an env file cannot hold");
        }
        text.push_str(&format!("{name}={value}\n"));
    }
    Ok(text)
}

fn nobody(annotations: BTreeMap<String, String>) -> Result<Prepare> {
    Ok(Prepare {
        id: "0".repeat(64).parse()?,
        name: None,
        image: None,
        annotations,
        user: User { uid: 0, gid: 0 },
        env: BTreeMap::new(),
        args: Vec::new(),
        managed: Vec::new(),
        joins: None,
        origin: None,
        mounts: None,
    })
}
