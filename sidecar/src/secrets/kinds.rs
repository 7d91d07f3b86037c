//! `understudy secrets kinds`: what `like` in `secrets.toml` can name.

use std::fmt::Write as _;

use serde::Serialize;

use understudy_harnesses::SecretKind;

use crate::credentials::Catalogue;
use crate::credentials::catalogue::{Endpoint, Kind, Provider};

const HEAD: [&str; 4] = ["KIND", "WHAT", "HOSTS", "VARIABLE"];

/// What no `like` names, as it has no place in requests or more to say of itself: kind, what it is, the page with its table.
const BY_HAND: [(SecretKind, &str, &str); 5] = [
    (SecretKind::Aws, "access key of AWS or of a store that speaks S3", "docs/aws.md"),
    (SecretKind::SshKey, "SSH key, for git", "docs/ssh.md"),
    (SecretKind::Postgres, "password of a PostgreSQL server", "docs/postgres.md"),
    (SecretKind::GoogleServiceAccount, "key of a Google service account", "docs/tokens.md"),
    (SecretKind::GithubApp, "key of a GitHub App", "docs/tokens.md"),
];

/// What to do about one of those. None: it is none of them.
pub fn by_hand(name: &str) -> Option<String> {
    let (_, what, page) = BY_HAND.into_iter().find(|(kind, ..)| kind.as_str() == name)?;
    Some(format!(
        "{name} ({what}) is not named by `like`: write its table into secrets.toml, with kind = {name:?}; {page} has one to copy"
    ))
}

/// A kind, for programs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Listed<'a> {
    name: &'a str,
    what: &'a str,
    provider: &'a str,
    kind: &'a str,
    /// Empty: those that the operator names.
    hosts: Vec<String>,
    variable: Option<&'a str>,
}

/// All that is known of one, for programs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Detailed<'a> {
    #[serde(flatten)]
    listed: Listed<'a>,
    placements: Vec<String>,
    /// Whether the provider's documentation says where it stands.
    confirmed: bool,
    shapes: Vec<Confirmable>,
    /// What makes new credentials.
    minting: Vec<Minting>,
}

#[derive(Debug, Serialize)]
struct Confirmable {
    pattern: String,
    confirmed: bool,
}

#[derive(Debug, Serialize)]
struct Minting {
    /// The word that `minting` in secrets.toml needs for it.
    creates: &'static str,
    /// Empty: the provider's own.
    hosts: Vec<String>,
    endpoint: String,
    confirmed: bool,
}

pub fn listed(catalogue: &Catalogue) -> Vec<Listed<'_>> {
    catalogue.providers().flat_map(|provider| &provider.kinds).map(|kind| Listed::of(kind)).collect()
}

impl<'a> Listed<'a> {
    fn of(kind: &'a Kind) -> Self {
        Self {
            name: &kind.name,
            what: &kind.what,
            provider: &kind.provider,
            kind: kind.kind.as_str(),
            hosts: strings(&kind.hosts),
            variable: kind.env.as_deref(),
        }
    }
}

pub fn detailed<'a>(catalogue: &Catalogue, kind: &'a Kind) -> Detailed<'a> {
    let provider = catalogue.providers().find(|provider| provider.name == kind.provider);
    let endpoints = provider.into_iter().flat_map(|provider| &provider.endpoints).map(|endpoint| Minting {
        creates: endpoint.creates.name(),
        hosts: strings(&endpoint.hosts),
        endpoint: endpoint.to_string(),
        confirmed: endpoint.confirmed,
    });
    let mutations = provider.into_iter().flat_map(|provider| &provider.mutations).map(|mutation| Minting {
        creates: mutation.creates.name(),
        hosts: strings(&mutation.hosts),
        endpoint: mutation.to_string(),
        confirmed: mutation.confirmed,
    });
    Detailed {
        listed: Listed::of(kind),
        placements: strings(&kind.placements),
        confirmed: kind.confirmed,
        shapes: kind
            .shapes
            .iter()
            .map(|shape| Confirmable { pattern: shape.pattern.to_string(), confirmed: shape.confirmed })
            .collect(),
        minting: endpoints.chain(mutations).collect(),
    }
}

fn strings<T: std::fmt::Display>(items: &[T]) -> Vec<String> {
    items.iter().map(T::to_string).collect()
}

/// A line for each kind, in columns.
pub fn table(catalogue: &Catalogue) -> String {
    let mut rows = vec![HEAD.map(str::to_owned)];
    for kind in catalogue.providers().flat_map(|provider| &provider.kinds) {
        let hosts = list(&kind.hosts, "(yours)");
        rows.push([
            kind.name.clone(),
            kind.what.clone(),
            hosts,
            kind.env.clone().unwrap_or_else(|| "-".into()),
        ]);
    }
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths = [width(0), width(1), width(2), width(3)];
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            let _ = write!(line, "{cell:width$}  ");
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text.push_str("\nnot named by `like`, but by `kind` in a table of secrets.toml:\n");
    for (kind, what, page) in BY_HAND {
        let _ = writeln!(text, "  {:<24}{what}; {page}", kind.as_str());
    }
    text
}

/// All that is known of one kind.
pub fn details(catalogue: &Catalogue, kind: &Kind) -> String {
    let mut text = format!("{}: {}\n", kind.name, kind.what);
    let _ = writeln!(text, "  kind:       {}", kind.kind.as_str());
    let _ = writeln!(text, "  hosts:      {}", list(&kind.hosts, "those that you name in `hosts`"));
    let _ = writeln!(text, "  placements: {}{}", list(&kind.placements, "-"), doubt(kind.confirmed));
    let _ = writeln!(text, "  variable:   {}", kind.env.as_deref().unwrap_or("-"));
    let _ = writeln!(text, "  looks like:");
    for shape in &kind.shapes {
        let _ = writeln!(text, "    {}{}", shape.pattern, doubt(shape.confirmed));
    }
    let provider = catalogue.providers().find(|provider| provider.name == kind.provider);
    let endpoints: &[Endpoint] = provider.map_or(&[], |provider: &Provider| &provider.endpoints);
    let mutations = provider.map_or(&[][..], |provider: &Provider| &provider.mutations);
    if !endpoints.is_empty() || !mutations.is_empty() {
        let _ = writeln!(text, "  refused, unless `minting` in secrets.toml has the word in front:");
    }
    for endpoint in endpoints {
        let hosts = list(&endpoint.hosts, "");
        let _ = writeln!(
            text,
            "    {:<10} {}{hosts}{endpoint}{}",
            endpoint.creates.name(),
            if hosts.is_empty() { "" } else { "at " },
            doubt(endpoint.confirmed)
        );
    }
    for mutation in mutations {
        let _ = writeln!(text, "    {:<10} {mutation}{}", mutation.creates.name(), doubt(mutation.confirmed));
    }
    text
}

fn doubt(confirmed: bool) -> &'static str {
    if confirmed { "" } else { "  (not confirmed)" }
}

fn list<T: std::fmt::Display>(items: &[T], none: &str) -> String {
    if items.is_empty() {
        return none.to_owned();
    }
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_a_line_and_its_details_say_what_is_refused() {
        let catalogue = Catalogue::new([]).unwrap();
        let table = table(&catalogue);
        let (liked, by_hand) = table.split_once("\n\n").unwrap();
        assert_eq!(liked.lines().count(), catalogue.size().0 + 1);
        for (kind, _, page) in BY_HAND {
            assert!(by_hand.contains(kind.as_str()) && by_hand.contains(page), "{by_hand}");
            let told = super::by_hand(kind.as_str()).unwrap();
            assert!(told.contains(page) && catalogue.kind(kind.as_str()).is_err(), "{told}");
        }
        assert_eq!(super::by_hand("github-pat"), None);
        assert!(table.lines().any(|line| line.starts_with("github-pat ") && line.ends_with("GITHUB_TOKEN")));
        assert!(
            table.lines().any(|line| line.starts_with("container-registry ") && line.contains("(yours)"))
        );
        let details = details(&catalogue, catalogue.kind("github-pat").unwrap());
        for said in [
            "placements: header authorization Bearer, header authorization token, basic password, basic user\n",
            "    ghp_{base62:30}{crc32-base62}\n",
            "    github_pat_{base62:22}_{base62:59}  (not confirmed)\n",
            "    deploy-key POST /repos/*/*/keys\n",
        ] {
            assert!(details.contains(said), "{details}\nexpected {said}");
        }
    }

    #[test]
    fn programs_get_what_people_get() {
        let catalogue = Catalogue::new([]).unwrap();
        assert_eq!(listed(&catalogue).len(), catalogue.size().0);
        let details =
            serde_json::to_value(detailed(&catalogue, catalogue.kind("github-pat").unwrap())).unwrap();
        assert_eq!((&details["name"], &details["variable"]), (&"github-pat".into(), &"GITHUB_TOKEN".into()));
        assert_eq!(details["placements"][0], "header authorization Bearer");
        let has = |key: &str, wanted: serde_json::Value| details[key].as_array().unwrap().contains(&wanted);
        let shape = serde_json::json!({"pattern": "github_pat_{base62:22}_{base62:59}", "confirmed": false});
        assert!(has("shapes", shape), "{details}");
        let key =
            details["minting"].as_array().unwrap().iter().find(|one| one["creates"] == "deploy-key").unwrap();
        assert_eq!(key["endpoint"], "POST /repos/*/*/keys");
    }

    #[test]
    fn the_table_of_the_documentation_is_that_of_the_data() {
        let documented = include_str!("../../../docs/secrets.md");
        let catalogue = Catalogue::new([]).unwrap();
        for kind in catalogue.providers().flat_map(|provider| &provider.kinds) {
            let line = format!(
                "| `{}` | {} | {} | {} |\n",
                kind.name,
                kind.what,
                list(&kind.hosts, "yours"),
                kind.env.as_ref().map_or_else(String::new, |env| format!("`{env}`"))
            );
            assert!(documented.contains(&line), "docs/secrets.md lacks:\n{line}");
        }
    }
}
