//! An account of the store as secrets of the vault: its access token, and beside it the tokens that are never sent but must
//! be told from other words.

use std::sync::Arc;

use super::{Loaded, Loading, Rejected};
use crate::accounts::{Record, Token};
use crate::credentials::declaration::{Declaration, PARTS};
use crate::credentials::secret::SecretValue;

impl Loading<'_> {
    /// The access token first. An account that cannot be read stays what it was.
    pub(super) fn account(
        &self,
        declaration: &Declaration,
        name: &str,
    ) -> Result<Vec<(Declaration, Loaded)>, Rejected> {
        let store = &self.around.accounts;
        let read = store.read(name).map_err(|error| error.to_string());
        match read.and_then(|record| parts(declaration, name, &record, store.previous(name).as_ref())) {
            Ok(parts) => Ok(parts),
            Err(error) => self.as_before(declaration, &error).ok_or_else(|| Rejected::from(error)),
        }
    }

    fn as_before(&self, declaration: &Declaration, error: &str) -> Option<Vec<(Declaration, Loaded)>> {
        let before = self.previous?;
        let kept = before.secret(&declaration.name)?;
        if kept.declaration().source != declaration.source || kept.declaration().like != declaration.like {
            return None;
        }
        let stale = Some(error.to_owned());
        let mut parts = vec![(declaration.clone(), Loaded { stale, ..kept.loaded().clone() })];
        for part in PARTS.map(|part| declaration.part(part)) {
            if let Some(kept) = before.secret(&part.name) {
                parts.push((part, kept.loaded().clone()));
            }
        }
        Some(parts)
    }
}

fn parts(
    declaration: &Declaration,
    name: &str,
    record: &Record,
    previous: Option<&Record>,
) -> Result<Vec<(Declaration, Loaded)>, String> {
    let wanted = declaration.like.as_ref().map_or("", |like| like.name.as_str());
    if record.kind != wanted {
        return Err(format!("account `{name}` is a `{}`, and `like` says `{wanted}`", record.kind));
    }
    let loaded = |token: &Token, stand_in: &str, earlier: Option<&Token>| {
        let earlier = earlier.filter(|earlier| earlier.expose() != token.expose());
        let earlier = earlier.and_then(|token| value(token).ok());
        Ok::<_, String>(Loaded { earlier, ..Loaded::new(Some(value(token)?), stand_in.to_owned()) })
    };
    let stand_ins = &record.stand_ins;
    let access = loaded(&record.access, &stand_ins.access, previous.map(|record| &record.access))?;
    let access = Loaded { account: Some(Arc::new(record.account(name))), ..access };
    let mut parts = vec![(declaration.clone(), access)];
    if let (Some(refresh), Some(stand_in)) = (&record.refresh, &stand_ins.refresh) {
        let refresh = loaded(refresh, stand_in, previous.and_then(|record| record.refresh.as_ref()))?;
        parts.push((declaration.part(PARTS[0]), refresh));
    }
    if let (Some(id), Some(stand_in)) = (&record.id, &stand_ins.id) {
        let id = loaded(id, stand_in, previous.and_then(|record| record.id.as_ref()))?;
        parts.push((declaration.part(PARTS[1]), id));
    }
    Ok(parts)
}

fn value(token: &Token) -> Result<Arc<SecretValue>, String> {
    SecretValue::from_bytes(token.expose().as_bytes()).map(Arc::new).map_err(|error| error.to_string())
}
