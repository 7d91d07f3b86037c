//! An installation for tests.

use std::collections::HashMap;
use std::sync::Arc;

use zeroize::Zeroizing;

use super::declaration;
use super::source::Source;
use super::{Catalogue, InstallationKey, Vault};

/// Real values by the name of the secret.
pub(crate) type Values = HashMap<&'static str, &'static str>;

/// An API key for `api.example.com` in `x-api-key`, granted to `claude-code`.
pub(crate) fn declared(name: &str, more: &str) -> String {
    format!(
        "[{name}]\nkind = \"api-key\"\nfile = \"/run/secrets/{name}\"\nhosts = [\"api.example.com\"]\n\
         placements = [\"header x-api-key\"]\ngrant-to = {{ harnesses = [\"claude-code\"] }}\n{more}\n"
    )
}

pub(crate) fn vault(text: &str, values: &Values) -> Vault {
    let read = |source: &Source| {
        let Source::File(path) = source else { return Err("not a file".to_owned()) };
        let name = path.file_name().unwrap().to_str().unwrap();
        let value = values.get(name).ok_or("no such file")?;
        Ok(Zeroizing::new(value.as_bytes().to_vec()))
    };
    let catalogue = Arc::new(Catalogue::new([]).unwrap());
    Vault::new(
        declaration::parse("secrets.toml", text, &catalogue).unwrap(),
        catalogue,
        &InstallationKey::from_bytes(&[1; 32]),
        read,
    )
    .unwrap()
}
