//! A rule as one line, for lists and comparisons.

use std::fmt;

use crate::{Conditions, Effect, Ports, Rule};

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.effect {
            Effect::Allow => "allow",
            Effect::Deny => "deny",
        })?;
        let hosts: Vec<String> = self.hosts.iter().map(ToString::to_string).collect();
        write!(f, " {}", hosts.join(", "))?;
        match &self.ports {
            Ports::Any => f.write_str(", every port")?,
            Ports::These(ports) if ports == &[443] => {}
            Ports::These(ports) => {
                let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
                write!(f, ", port {}", ports.join(" "))?;
            }
        }
        for (said, what) in [(self.splice, ", splice"), (self.inspect, ", inspect"), (self.tcp, ", tcp")] {
            if said {
                f.write_str(what)?;
            }
        }
        if let Some(databases) = &self.postgres {
            f.write_str(", postgres")?;
            if !databases.is_empty() {
                // With quotes: a name can have spaces and commas in it.
                write!(f, ", databases {databases:?}")?;
            }
        }
        self.terms.fmt(f)?;
        self.conditions.fmt(f)
    }
}

impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.methods.is_empty() {
            write!(f, ", {}", self.methods.join(" "))?;
        }
        if !self.paths.is_empty() {
            let paths: Vec<String> = self.paths.iter().map(ToString::to_string).collect();
            write!(f, ", paths {}", paths.join(" "))?;
        }
        if let Some(query) = &self.query {
            write!(f, ", query {query:?}")?;
        }
        match &self.git {
            Some(git) => write!(f, ", {git}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::written::{self, Written};
    use crate::{Effect, HostPattern, Policy, Ports, Rule};

    #[test]
    fn a_rule_is_one_line_with_all_that_it_says() {
        let text = "[[allow]]\nhost = [\"a.example\", \"*.b.example\"]\nport = [443, 80]\nmethods = \"GET\"\npaths = \"/x/**\"\nquery = [\"k\"]\n\
                    [[allow]]\nhost = \"c.example\"\ngit = \"write\"\nrepos = \"o/n\"\n[[deny]]\nhost = \"d.example\"\n\
                    [[allow]]\nhost = \"e.example\"\nprivate = true\nmax-body = \"1K\"\nrate = \"60/m\"\n\
                    upgrade = [\"tcp\", \"SPDY/3.1\"]\n[[allow]]\nhost = \"f.example\"\ninspect = true\n\
                    [[allow]]\nhost = \"f.example\"\npostgres = true\ndatabases = [\"a b\", \"c\"]\n";
        let policy = Policy::parse("p", "p.toml", text).unwrap();
        let lines: Vec<String> = policy.rules().iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "allow a.example, *.b.example, port 443 80, GET, paths /x/**, query [\"k\"]",
                "allow c.example, git write of o/n",
                "allow e.example, private, max-body 1024, rate 60/m, upgrade tcp, upgrade SPDY/3.1",
                "allow f.example, inspect",
                "allow f.example, port 5432, postgres, databases [\"a b\", \"c\"]",
                "deny d.example, every port"
            ]
        );
    }

    /// As a file would have it: what was read, in its normal form.
    fn rewritten(rule: &Rule) -> String {
        if rule.hosts == [HostPattern::Everything] {
            return "open = true\n".to_owned();
        }
        let list = |key: &str, items: Vec<String>| match items.is_empty() {
            true => String::new(),
            false => format!("{key} = {items:?}\n"),
        };
        fn shown<T: ToString>(items: &[T]) -> Vec<String> {
            items.iter().map(ToString::to_string).collect()
        }
        let flag = |key: &str, is: bool| if is { format!("{key} = true\n") } else { String::new() };
        let (conditions, terms) = (&rule.conditions, &rule.terms);
        let mut text = format!("[[{}]]\n", if rule.effect == Effect::Allow { "allow" } else { "deny" });
        text += &list("host", shown(&rule.hosts));
        if let Ports::These(ports) = &rule.ports {
            text += &format!("port = {ports:?}\n");
        }
        text += &list("methods", conditions.methods.clone());
        text += &list("paths", shown(&conditions.paths));
        text += &conditions.query.as_ref().map(|query| format!("query = {query:?}\n")).unwrap_or_default();
        if let Some(git) = conditions.git.as_ref().map(ToString::to_string) {
            let (access, repos) = git.strip_prefix("git ").and_then(|git| git.split_once(" of ")).unwrap();
            text += &format!("git = {access:?}\n");
            text += &list("repos", repos.split(", ").map(str::to_owned).collect());
        }
        text += &(flag("splice", rule.splice)
            + &flag("inspect", rule.inspect)
            + &flag("tcp", rule.tcp)
            + &flag("postgres", rule.postgres.is_some()));
        text += &list("databases", rule.postgres.clone().unwrap_or_default());
        text += &flag("private", terms.private);
        text += &terms.max_body.map(|bytes| format!("max-body = {bytes}\n")).unwrap_or_default();
        text += &terms.rate.map(|rate| format!("rate = \"{rate}\"\n")).unwrap_or_default();
        text += &list("upgrade", shown(&terms.upgrade));
        text += &rule.note.as_ref().map(|note| format!("note = {note:?}\n")).unwrap_or_default();
        text
    }

    /// Wherever they stand.
    fn rules(text: &str) -> Vec<Rule> {
        let policy = Policy::parse("p", "p.toml", text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let bare = |rule: &Rule| Rule { place: String::new(), column: None, ..rule.clone() };
        policy.rules().iter().map(bare).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn what_was_read_is_read_again_as_the_same(
            head in written::head(), written in proptest::collection::vec(written::rule(), 0..5),
        ) {
            let read = rules(&(head + &written.iter().map(Written::text).collect::<String>()));
            let again: String = read.iter().map(rewritten).collect();
            prop_assert_eq!(rules(&again), read, "{}", again);
        }

        /// Else `policy diff` would take one for the other.
        #[test]
        fn two_rules_with_one_line_are_the_same_rule(one in written::rule(), other in written::rule()) {
            let [one, other] = [one, other].map(|rule| rules(&rule.about("a.x", "443").text()).remove(0));
            let noted = Rule { note: one.note.clone(), ..other.clone() };
            prop_assert_eq!(one.to_string() == other.to_string(), one == noted);
        }
    }
}
