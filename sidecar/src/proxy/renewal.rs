//! An upstream that does not take an account's token: the account is renewed once, and the request sent again where its body
//! can be. Where it cannot, the answer is passed on, and the program's own next try has the new token.

use http::StatusCode;
use pingora_error::{Error, ErrorType, Result};
use pingora_http::ResponseHeader;
use pingora_proxy::Session;

use super::engine::Engine;
use super::failure::Failure;
use super::record::Exchange;
use crate::accounts::RenewError;
use crate::reason::Reason;

impl Engine {
    /// After the head of an answer. An error is the request's next try, or its end.
    pub(super) async fn renewal(
        &self,
        session: &mut Session,
        response: &ResponseHeader,
        exchange: &mut Exchange,
    ) -> Result<()> {
        let Some(keeper) = self.accounts.as_ref().filter(|_| response.status == StatusCode::UNAUTHORIZED)
        else {
            return Ok(());
        };
        let Some((account, generation)) = exchange.plan.as_ref().and_then(|plan| {
            let used = plan.swaps.secrets.iter().find_map(|name| plan.searches.account(name))?;
            Some((used.name.clone(), used.generation))
        }) else {
            return Ok(());
        };
        if exchange.renewed {
            return Ok(());
        }
        exchange.renewed = true;
        match keeper.renew_refused(&account, generation).await {
            Ok(()) if !is_replayable(session, exchange) => Ok(()),
            Ok(()) => {
                // The way to the upstream and the policy are what they are now.
                let Ok((target, upstream, swaps, searches)) = self.judge(session, exchange).await else {
                    return Ok(());
                };
                let body = exchange.plan.as_mut().and_then(|plan| plan.body.take());
                exchange.allow(target, upstream, swaps, searches, body);
                exchange.again = true;
                Error::e_explain(ErrorType::InternalError, "again with a new token")
            }
            Err(error @ RenewError::Ended { .. }) => {
                let detail = format!(
                    "{error}; log in again, then: understudy login import FORMAT --account {account} < FILE"
                );
                exchange.break_off(Failure { reason: Reason::LoginNeeded, detail, client_gone: false });
                Error::e_explain(ErrorType::InternalError, "the login is over")
            }
            // The provider's own answer says more than that it cannot be asked.
            Err(RenewError::Later { .. }) => Ok(()),
        }
    }
}

/// Whether all of the body is still there to be sent again.
fn is_replayable(session: &mut Session, exchange: &Exchange) -> bool {
    let held = exchange.plan.as_ref().is_some_and(|plan| plan.body.is_some());
    let downstream = session.as_mut();
    let whole = downstream.is_body_empty() || downstream.is_body_done();
    (held || whole) && !downstream.retry_buffer_truncated()
}
