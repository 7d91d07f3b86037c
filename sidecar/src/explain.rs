//! `understudy explain`: what policy makes of a request, which rules were asked, and what would change it (`verdict`). Of
//! policies it reads files only; of a container it asks the sidecar. Nothing is resolved or sent.

pub mod asked;
pub mod verdict;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use understudy_control::{Explain, Explained, Outcome, Reply, Request, annotation};
use understudy_harnesses::Harnesses;
use understudy_policies::{Policies, Policy, PolicySet, builtin};

use crate::ceiling;
use crate::config::Directories;
use crate::operator::Mode;
use crate::output::Output;
use crate::trail::Call;
use asked::Asked;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    pub directories: Directories,
    /// As `https://api.example.com/v1/x?key=1` (`https://` may be left out), `tcp://HOST:PORT` for bytes that are neither TLS
    /// nor HTTP, `ssh://git@HOST/OWNER/REPO` or `git@HOST:OWNER/REPO` for git over SSH, `postgres://USER@HOST/DATABASE`
    url: String,
    /// The request's method [default: GET]; for git over SSH `git-upload-pack` (fetch, the default) or `git-receive-pack`
    /// (push)
    #[arg(long)]
    method: Option<String>,
    /// A container that the sidecar knows, with all that it is under now: its name, its id, or the beginning of its id
    #[arg(long, value_name = "NAME", conflicts_with_all = ["policy", "allow", "harness", "login", "privacy"])]
    container: Option<String>,
    /// As in the annotation understudy.policy
    #[arg(long, value_name = "NAMES", default_value = builtin::HARNESS_ONLY)]
    policy: String,
    /// As in the annotation understudy.allow
    #[arg(long, value_name = "HOSTS")]
    allow: Option<String>,
    /// Whose hosts `harness-only` means
    #[arg(long, value_name = "NAME", default_value = "generic")]
    harness: String,
    /// The harness's login that the container has
    #[arg(long, value_name = "NAME")]
    login: Option<String>,
    /// As in the annotation understudy.privacy
    #[arg(long, value_name = "LEVEL")]
    privacy: Option<String>,
    #[command(flatten)]
    output: Output,
}

/// Exit status 0 if it is allowed, 2 if it is refused, or would be without an answer of the operator.
pub fn run(arguments: &Arguments, call: Call<'_>) -> Result<ExitCode> {
    let explained = match &arguments.container {
        Some(container) => of_container(container, arguments, call)?,
        None => of_files(arguments)?,
    };
    arguments.output.print(&explained, verdict::text)?;
    Ok(match explained.decision {
        Outcome::Allowed => ExitCode::SUCCESS,
        Outcome::Asked | Outcome::Refused => ExitCode::from(2),
    })
}

fn of_container(container: &str, arguments: &Arguments, call: Call<'_>) -> Result<Explained> {
    let (method, url) = (arguments.method.clone(), arguments.url.clone());
    match call(Request::Explain(Explain { container: container.to_owned(), method, url }))? {
        Reply::Explained(explained) => Ok(*explained),
        _ => bail!("the sidecar answered another question"),
    }
}

fn of_files(arguments: &Arguments) -> Result<Explained> {
    let policies = Policies::load(Some(&arguments.directories.policies()));
    let harnesses = Harnesses::load(Some(&arguments.directories.harnesses()));
    let mut set = Vec::new();
    for name in annotation::list(&arguments.policy) {
        set.push(policy(name, arguments, &policies, &harnesses)?);
    }
    if let Some(allow) = &arguments.allow {
        set.push(Arc::new(Policy::from_allow_annotation(allow)?));
    }
    let ceiling = ceiling::load(&arguments.directories.ceiling_toml())?;
    let beyond: Vec<_> = set.iter().filter_map(|policy| ceiling::beyond(policy, &ceiling)).collect();
    set.extend(ceiling.denials().map(Arc::new));
    let set = PolicySet::combine(set);
    let own = set.policies().iter().flat_map(|policy| policy.warnings());
    for warning in beyond.iter().chain(own).chain(&set.warnings()) {
        eprintln!("understudy: warning: {warning}");
    }
    let asked = Asked::parse(&arguments.url, arguments.method.as_deref())?;
    Ok(verdict::explain(&set, Mode::Deny, &asked, &|_, _| None))
}

fn policy(
    name: &str,
    arguments: &Arguments,
    policies: &Policies,
    harnesses: &Harnesses,
) -> Result<Arc<Policy>> {
    if name == builtin::HARNESS_ONLY {
        let harness = harnesses.harness(&arguments.harness)?;
        let login = arguments.login.as_ref().map(|name| {
            let login = harness.logins.iter().find(|login| login.name == *name);
            login.with_context(|| format!("harness {} has no login `{name}`", harness.name))
        });
        let level = harness.level(arguments.privacy.as_deref());
        if let Some(asked) = arguments.privacy.as_ref().filter(|asked| *asked != level) {
            bail!("harness {} has no privacy level `{asked}`", harness.name);
        }
        let hosts = harness.allowed_hosts(login.transpose()?, level);
        return Ok(Arc::new(builtin::harness_only(&harness.name, hosts)));
    }
    policies.policy(name).with_context(|| match policies.suggestion(name) {
        Some(meant) => format!("there is no policy {name:?}; did you mean `{meant}`?"),
        None => format!("there is no policy {name:?}; list them with: understudy policy list"),
    })
}
