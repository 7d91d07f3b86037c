//! `understudy secrets kinds`: what `like` in `secrets.toml` can name.

use std::fmt::Write as _;

use crate::credentials::Catalogue;
use crate::credentials::catalogue::{Endpoint, Kind, Provider};

const HEAD: [&str; 4] = ["KIND", "WHAT", "HOSTS", "VARIABLE"];

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
        assert_eq!(table.lines().count(), catalogue.size().0 + 1);
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
