//! What is in a text that a container would have: a file that is mounted, an annotation.

use understudy_control::Refusal;

use super::vault::Vault;

/// A note, if it holds a credential that the sidecar does not know: only what is declared is kept from containers, and
/// tests of a project are full of what looks like one.
///
/// # Errors
/// If it holds a real value, with its secret's name.
pub fn look(vault: &Vault, name: &str, text: &[u8]) -> Result<Option<String>, Refusal> {
    if let Some(secret) = vault.real_value_in(text) {
        return Err(Refusal::new(
            format!("{name} holds the real value of secret `{secret}`"),
            format!("take it out, or leave that out of the container; it is given a stand-in for `{secret}`"),
        ));
    }
    let shape = |line: &[u8]| vault.catalogue().credential_in(line).cloned().filter(|shape| shape.long_lived);
    let ours = |line: &[u8]| vault.is_marked(line) || vault.stand_ins_in(line).next().is_some();
    let mut lines = text.split(|byte| *byte == b'\n');
    let found = lines.find_map(|line| shape(line).filter(|_| !ours(line)));
    Ok(found.map(|shape| {
        format!(
            "{name} holds what looks like a real credential ({}), which no secret of the sidecar's is",
            shape.what
        )
    }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::fixture::{Values, declared, vault};
    use super::*;

    const KEY: &str = "sk-ant-api03-REALrealREAL0123456789";

    fn ours() -> Vault {
        vault(&declared("key", ""), &Values::from([("key", KEY)]))
    }

    #[test]
    fn a_real_value_is_refused_by_its_name_in_any_form_and_a_stand_in_is_none() {
        let vault = ours();
        let encoded = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, format!("user:{KEY}"));
        for text in [format!("A=1\nKEY={KEY}\n"), encoded, KEY.to_ascii_uppercase(), KEY.replace('-', "%2D")]
        {
            let refusal = look(&vault, "file /p/.env", text.as_bytes()).unwrap_err();
            assert_eq!(refusal.reason, "file /p/.env holds the real value of secret `key`");
            assert!(!refusal.to_string().contains("REALreal"), "{refusal}");
        }
        let stand_in = vault.secret("key").unwrap().stand_in();
        assert_eq!(look(&vault, "x", format!("KEY={stand_in}\n").as_bytes()).unwrap(), None);
        assert_eq!(look(&vault, "x", b"").unwrap(), None);
    }

    #[test]
    fn what_looks_like_one_is_noted_beside_a_stand_in_too() {
        let vault = ours();
        let foreign = format!("sk-ant-api03-{}AA", "x1Y-".repeat(24).get(..93).unwrap());
        let stand_in = vault.secret("key").unwrap().stand_in();
        for text in [format!("KEY={foreign}"), format!("OURS={stand_in}\nKEY={foreign}\n")] {
            let note = look(&vault, "file /p/.env", text.as_bytes()).unwrap().unwrap();
            assert!(note.starts_with("file /p/.env holds what looks like a real credential ("), "{note}");
            assert!(!note.contains(&foreign), "{note}");
        }
    }

    proptest! {
        #[test]
        fn it_is_found_wherever_it_stands_and_nothing_else_is_refused(
            before in proptest::collection::vec(any::<u8>(), 0..300),
            after in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let vault = ours();
            let around = [before.as_slice(), after.as_slice()].concat();
            prop_assert!(look(&vault, "x", &around).is_ok());
            let with = [before.as_slice(), KEY.as_bytes(), after.as_slice()].concat();
            prop_assert!(look(&vault, "x", &with).is_err());
        }
    }
}
