//! Counts requests for Prometheus.

use std::time::Instant;

use actix_web::Error;
use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::middleware::Next;
use actix_web::web::Data;
use broker::AgentName;

use crate::observe::Observer;

/// The series of one front.
pub(super) struct FrontRequests {
    observer: Observer,
    agent: String,
}

impl FrontRequests {
    pub(super) fn new(observer: Observer, agent: &AgentName) -> Self {
        Self {
            observer,
            agent: agent.to_string(),
        }
    }

    fn count(&self, route: &str, code: u16, begun: Instant) {
        let Some(series) = self.observer.series().map(|series| &series.http) else {
            return;
        };
        series.requests.of([&self.agent, route, &code.to_string()]).inc();
        let seconds = series.seconds.of([&self.agent, route]);
        seconds.observe(begun.elapsed().as_secs_f64());
    }
}

/// The middleware that counts. A path that is no pattern of ours counts as `other`, because a
/// client chooses it.
pub(super) async fn count<B: MessageBody>(request: ServiceRequest, next: Next<B>) -> Result<ServiceResponse<B>, Error> {
    let requests = request.app_data::<Data<FrontRequests>>().cloned();
    let begun = Instant::now();
    let response = next.call(request).await?;
    if let Some(requests) = requests {
        let route = response.request().match_pattern();
        let code = response.status().as_u16();
        requests.count(route.as_deref().unwrap_or("other"), code, begun);
    }
    Ok(response)
}
