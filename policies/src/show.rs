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
                write!(f, ", databases {}", databases.join(" "))?;
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
    use crate::Policy;

    #[test]
    fn a_rule_is_one_line_with_all_that_it_says() {
        let text = "[[allow]]\nhost = [\"a.example\", \"*.b.example\"]\nport = [443, 80]\nmethods = \"GET\"\npaths = \"/x/**\"\nquery = [\"k\"]\n\
                    [[allow]]\nhost = \"c.example\"\ngit = \"write\"\nrepos = \"o/n\"\n[[deny]]\nhost = \"d.example\"\n\
                    [[allow]]\nhost = \"e.example\"\nprivate = true\nmax-body = \"1K\"\nrate = \"60/m\"\n\
                    upgrade = [\"tcp\", \"SPDY/3.1\"]\n[[allow]]\nhost = \"f.example\"\ninspect = true\n";
        let policy = Policy::parse("p", "p.toml", text).unwrap();
        let lines: Vec<String> = policy.rules().iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "allow a.example, *.b.example, port 443 80, GET, paths /x/**, query [\"k\"]",
                "allow c.example, git write of o/n",
                "allow e.example, private, max-body 1024, rate 60/m, upgrade tcp, upgrade SPDY/3.1",
                "allow f.example, inspect",
                "deny d.example, every port"
            ]
        );
    }
}
