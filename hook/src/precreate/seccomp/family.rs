//! What a profile says about `socket` for one address family.

use serde_json::Value;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    Eq,
    Ne,
    Gt,
    Ge,
    Lt,
    Le,
}

/// One condition on one argument (seccomp_rule_add(3)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) index: u32,
    pub(super) value: u64,
    pub(super) op: Op,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Always,
    /// If all conditions of one of the ways hold.
    When(Vec<Vec<Condition>>),
    Never,
}

pub(super) fn permits(action: &str) -> bool {
    matches!(action, "SCMP_ACT_ALLOW" | "SCMP_ACT_LOG")
}

/// Without asking anybody: a tracer can be in the container.
pub(super) fn denies(action: &str) -> bool {
    let all =
        ["SCMP_ACT_ERRNO", "SCMP_ACT_KILL", "SCMP_ACT_KILL_THREAD", "SCMP_ACT_KILL_PROCESS", "SCMP_ACT_TRAP"];
    all.contains(&action)
}

/// Errs on the strict side where rules overlap in a way that cannot be told apart.
pub(super) fn verdict(default: &str, rules: &[Value], family: u64) -> Verdict {
    let mut allowed: Vec<Vec<Condition>> = Vec::new();
    let mut denied: Vec<Vec<Condition>> = Vec::new();
    for rule in rules.iter().filter(|rule| names_socket(rule)) {
        let action = rule.get("action").and_then(Value::as_str).unwrap_or_default();
        let Some(conditions) = conditions(rule) else {
            // Not understood: nothing is gained by it, and nothing passes that it might have denied.
            if permits(action) {
                continue;
            }
            return Verdict::Never;
        };
        if !conditions
            .iter()
            .filter(|condition| condition.index == 0)
            .all(|condition| condition.holds(family))
        {
            continue;
        }
        let rest: Vec<_> = conditions.into_iter().filter(|condition| condition.index != 0).collect();
        let list = if permits(action) { &mut allowed } else { &mut denied };
        if !list.contains(&rest) {
            list.push(rest);
        }
    }
    if allowed.is_empty() && permits(default) {
        allowed.push(Vec::new());
    }
    if allowed.iter().any(Vec::is_empty) {
        allowed = vec![Vec::new()];
    }
    if allowed.is_empty() {
        return Verdict::Never;
    }
    match denied.as_slice() {
        [] if allowed == [Vec::new()] => Verdict::Always,
        [] => Verdict::When(allowed),
        [one] => match one.as_slice() {
            [condition] if allowed == [Vec::new()] => Verdict::When(vec![vec![condition.opposite()]]),
            [condition] if allowed.iter().all(|way| way.contains(&condition.opposite())) => {
                Verdict::When(allowed)
            }
            _ => Verdict::Never,
        },
        _ => Verdict::Never,
    }
}

fn names_socket(rule: &Value) -> bool {
    rule.get("names").and_then(Value::as_array).into_iter().flatten().any(|name| name == "socket")
}

/// None if one of them is not understood.
fn conditions(rule: &Value) -> Option<Vec<Condition>> {
    match rule.get("args") {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(Value::Array(all)) => all.iter().map(Condition::parse).collect(),
        Some(_) => None,
    }
}

impl Condition {
    fn parse(value: &Value) -> Option<Self> {
        let op = match value.get("op")?.as_str()? {
            "SCMP_CMP_EQ" => Op::Eq,
            "SCMP_CMP_NE" => Op::Ne,
            "SCMP_CMP_GT" => Op::Gt,
            "SCMP_CMP_GE" => Op::Ge,
            "SCMP_CMP_LT" => Op::Lt,
            "SCMP_CMP_LE" => Op::Le,
            _ => return None,
        };
        // A zero is left out by some writers.
        let number = |name: &str| value.get(name).map_or(Some(0), Value::as_u64);
        Some(Self { index: u32::try_from(number("index")?).ok()?, value: number("value")?, op })
    }

    fn holds(&self, found: u64) -> bool {
        match self.op {
            Op::Eq => found == self.value,
            Op::Ne => found != self.value,
            Op::Gt => found > self.value,
            Op::Ge => found >= self.value,
            Op::Lt => found < self.value,
            Op::Le => found <= self.value,
        }
    }

    pub(super) fn opposite(&self) -> Self {
        let op = match self.op {
            Op::Eq => Op::Ne,
            Op::Ne => Op::Eq,
            Op::Gt => Op::Le,
            Op::Le => Op::Gt,
            Op::Lt => Op::Ge,
            Op::Ge => Op::Lt,
        };
        Self { op, ..*self }
    }

    pub(super) fn parts(&self) -> (u32, u64, &'static str) {
        let op = match self.op {
            Op::Eq => "SCMP_CMP_EQ",
            Op::Ne => "SCMP_CMP_NE",
            Op::Gt => "SCMP_CMP_GT",
            Op::Ge => "SCMP_CMP_GE",
            Op::Lt => "SCMP_CMP_LT",
            Op::Le => "SCMP_CMP_LE",
        };
        (self.index, self.value, op)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn podmans_audit_rules_leave_one_condition_for_netlink_and_none_for_others() {
        let rules = [
            json!({"names": ["socket"], "action": "SCMP_ACT_ERRNO", "args": [
                {"index": 0, "value": 16, "op": "SCMP_CMP_EQ"}, {"index": 2, "value": 9, "op": "SCMP_CMP_EQ"}]}),
            json!({"names": ["socket"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 2, "value": 9, "op": "SCMP_CMP_NE"}]}),
            json!({"names": ["socket"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 0, "value": 16, "op": "SCMP_CMP_NE"}]}),
        ];
        assert_eq!(verdict("SCMP_ACT_ERRNO", &rules, 2), Verdict::Always);
        let audit = Condition { index: 2, value: 9, op: Op::Ne };
        assert_eq!(verdict("SCMP_ACT_ERRNO", &rules, 16), Verdict::When(vec![vec![audit]]));
    }

    #[test]
    fn a_comparison_that_is_not_understood_permits_nothing() {
        let masked = |action: &str| {
            json!({"names": ["socket"], "action": action, "args": [
            {"index": 0, "value": 1, "valueTwo": 1, "op": "SCMP_CMP_MASKED_EQ"}]})
        };
        assert_eq!(verdict("SCMP_ACT_ERRNO", &[masked("SCMP_ACT_ALLOW")], 1), Verdict::Never);
        assert_eq!(verdict("SCMP_ACT_ALLOW", &[masked("SCMP_ACT_ERRNO")], 2), Verdict::Never);
    }
}
