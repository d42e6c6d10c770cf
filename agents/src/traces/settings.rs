//! The settings of traces: OpenTelemetry's environment variables, checked before anything starts.

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use super::ids::Sampler;
use crate::base::fault::Usage;
use crate::base::secret::secret_in;
use crate::engine::process::link;

/// The collector's URL, to which `/v1/traces` is added. Without it and [`TRACES_ENDPOINT`] no trace
/// is made.
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// The whole URL for traces.
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
const TRACES_PROTOCOL: &str = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL";
const SERVICE: &str = "OTEL_SERVICE_NAME";
const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
const RATIO: &str = "OTEL_TRACES_SAMPLER_ARG";
const TEXTS: &str = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT";

/// The only protocol that is spoken.
const HTTP_PROTOBUF: &str = "http/protobuf";
/// The share of conversations that is sent if nothing else is said: a run of signals plays 300 of
/// them in a second.
const DEFAULT_RATIO: f64 = 0.01;

/// How the traces of a process are made and sent.
#[derive(Debug)]
pub struct TracesPlan {
    pub(super) url: String,
    pub(super) headers: HeaderMap,
    pub(super) service: String,
    pub(super) sampler: Sampler,
    /// True if the texts of turns are sent.
    pub(super) texts: bool,
}

impl TracesPlan {
    /// Returns the plan that the environment describes, or `None` if it names no collector or turns
    /// traces off.
    ///
    /// # Errors
    /// A variable has a value that cannot be used.
    pub fn of_environment() -> Result<Option<Self>, Usage> {
        Self::read(secret_in)
    }

    /// `get` returns the value of a variable that is set and not empty.
    fn read(get: impl Fn(&str) -> Result<Option<String>, Usage>) -> Result<Option<Self>, Usage> {
        let Some(url) = url(&get)? else { return Ok(None) };
        for name in [TRACES_PROTOCOL, PROTOCOL] {
            if let Some(other) = get(name)?.filter(|protocol| protocol != HTTP_PROTOBUF) {
                return Err(refused(name, &other, "only http/protobuf is spoken")
                    .hint("remove the variable, and give the collector's port for HTTP, usually 4318"));
            }
        }
        let headers = get(HEADERS)?.map_or(Ok(HeaderMap::new()), |text| headers(&text))?;
        let service = get(SERVICE)?.unwrap_or_else(|| "dyad".into());
        let texts = get(TEXTS)?.map_or(Ok(false), |text| flag(&text))?;
        let sampler = sampler(get(SAMPLER)?, get(RATIO)?)?;
        Ok(sampler.map(|sampler| Self {
            url,
            headers,
            service,
            sampler,
            texts,
        }))
    }
}

fn url(get: impl Fn(&str) -> Result<Option<String>, Usage>) -> Result<Option<String>, Usage> {
    let judged = |name: &str, url: &str| {
        link::judged(url).map_err(|error| Usage {
            message: format!("{name}: {}", error.message),
            ..error
        })
    };
    if let Some(url) = get(TRACES_ENDPOINT)? {
        judged(TRACES_ENDPOINT, &url)?;
        return Ok(Some(url));
    }
    let Some(base) = get(ENDPOINT)? else { return Ok(None) };
    Ok(Some(format!("{}/v1/traces", judged(ENDPOINT, &base)?)))
}

/// Returns the sampler of conversations, or `None` if no trace is sent. The decision of a parent
/// changes nothing: a conversation has none.
fn sampler(kind: Option<String>, ratio: Option<String>) -> Result<Option<Sampler>, Usage> {
    let kind = kind.unwrap_or_else(|| "parentbased_traceidratio".into());
    let ratio = match kind.strip_prefix("parentbased_").unwrap_or(&kind) {
        "always_on" => 1.0,
        "always_off" => return Ok(None),
        "traceidratio" => match ratio {
            None => DEFAULT_RATIO,
            Some(text) => {
                let ratio = text
                    .trim()
                    .parse::<f64>()
                    .ok()
                    .filter(|ratio| (0.0..=1.0).contains(ratio));
                ratio.ok_or_else(|| refused(RATIO, &text, "write a share from 0 to 1, for example 0.01"))?
            }
        },
        _ => {
            let known = "write parentbased_traceidratio, traceidratio, always_on or always_off";
            return Err(refused(SAMPLER, &kind, known));
        }
    };
    Ok(Some(Sampler { ratio }))
}

fn flag(text: &str) -> Result<bool, Usage> {
    match text.to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(refused(TEXTS, text, "write true or false")),
    }
}

/// Reads `name=value` pairs with commas between them; values are percent-encoded. An error names no
/// value, since it may be a key.
fn headers(text: &str) -> Result<HeaderMap, Usage> {
    let mut found = HeaderMap::new();
    for (at, pair) in text.split(',').enumerate().filter(|(_, pair)| !pair.trim().is_empty()) {
        let header = pair.split_once('=').and_then(|(name, value)| {
            let name = HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
            let mut value = HeaderValue::from_bytes(&decoded(value.trim())?).ok()?;
            value.set_sensitive(true);
            Some((name, value))
        });
        let Some((name, value)) = header else {
            let message = format!(
                "{HEADERS}: pair {} is not NAME=VALUE with a percent-encoded value",
                at + 1
            );
            return Err(Usage::new(message).hint("for example authorization=Bearer%20KEY,x-scope=a"));
        };
        found.append(name, value);
    }
    Ok(found)
}

/// Returns the bytes of a percent-encoded text, or `None` if two digits do not follow a `%`.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let digits = part
            .get(..2)
            .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    Some(bytes)
}

fn refused(name: &str, value: &str, reason: &str) -> Usage {
    Usage::new(format!("{name} is {value:?}, which cannot be used: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLLECTOR: (&str, &str) = (ENDPOINT, "http://127.0.0.1:4318");

    fn read(variables: &[(&str, &str)]) -> Result<Option<TracesPlan>, Usage> {
        TracesPlan::read(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            Ok(found.map(|(_, value)| (*value).to_owned()))
        })
    }

    fn plan(variables: &[(&str, &str)]) -> TracesPlan {
        read(variables).unwrap().unwrap()
    }

    fn refusal(name: &str, value: &str) -> String {
        let error = read(&[COLLECTOR, (name, value)]).unwrap_err();
        assert!(error.message.contains(name), "{error}");
        error.message
    }

    #[test]
    fn without_an_endpoint_no_other_variable_counts() {
        assert!(read(&[(SAMPLER, "nonsense"), (HEADERS, "x")]).unwrap().is_none());
    }

    #[test]
    fn an_endpoint_alone_sends_one_conversation_in_a_hundred_without_texts() {
        let plan = plan(&[COLLECTOR]);
        assert_eq!(plan.url, "http://127.0.0.1:4318/v1/traces");
        assert_eq!((plan.service.as_str(), plan.sampler.ratio), ("dyad", 0.01));
        assert!(!plan.texts && plan.headers.is_empty());
    }

    #[test]
    fn the_url_for_traces_is_used_as_it_is() {
        let own = (TRACES_ENDPOINT, "https://collector.example/otlp/");
        assert_eq!(plan(&[COLLECTOR, own]).url, own.1);
        assert_eq!(
            plan(&[(ENDPOINT, "http://collector:4318/")]).url,
            "http://collector:4318/v1/traces"
        );
    }

    #[test]
    fn samplers_and_their_ratios_are_those_of_opentelemetry() {
        let ratio = |kind: &str, ratio: &str| plan(&[COLLECTOR, (SAMPLER, kind), (RATIO, ratio)]).sampler.ratio;
        assert_eq!(ratio("traceidratio", "0.25"), 0.25);
        assert_eq!(ratio("parentbased_traceidratio", "1"), 1.0);
        assert_eq!(ratio("always_on", "0.25"), 1.0);
        assert_eq!(ratio("traceidratio", "0"), 0.0, "batches are sent");
        assert_eq!(plan(&[COLLECTOR, (RATIO, "0.5")]).sampler.ratio, 0.5);
    }

    #[test]
    fn a_sampler_that_is_off_sends_nothing() {
        for off in ["always_off", "parentbased_always_off"] {
            assert!(read(&[COLLECTOR, (SAMPLER, off)]).unwrap().is_none());
            assert!(read(&[COLLECTOR, (SAMPLER, off), (TEXTS, "maybe")]).is_err());
        }
    }

    #[test]
    fn headers_are_decoded_and_not_printed() {
        let plan = plan(&[COLLECTOR, (HEADERS, "authorization=Bearer%20k,x-scope = a=b")]);
        assert_eq!(plan.headers["authorization"], "Bearer k");
        assert_eq!(plan.headers["x-scope"], "a=b");
        assert!(!format!("{plan:?}").contains("Bearer"));
    }

    #[test]
    fn values_that_cannot_be_used_are_rejected_with_their_variable() {
        for url in ["127.0.0.1:4318", "grpc://x", "http://collector.example.com:4318"] {
            refusal(TRACES_ENDPOINT, url);
            let error = read(&[(ENDPOINT, url)]).unwrap_err();
            assert!(error.message.contains(ENDPOINT), "{error}");
        }
        for ratio in ["-0.1", "1.1", "NaN", "all"] {
            refusal(RATIO, ratio);
        }
        refusal(SAMPLER, "jaeger_remote");
        refusal(PROTOCOL, "grpc");
        refusal(TEXTS, "span_only");
        for header in ["key", "a b=c", "=c", "k=%2", "k=%zz", "k=%0a"] {
            let message = refusal(HEADERS, &format!("good=secret,{header}"));
            assert!(message.contains("pair 2") && !message.contains("secret"), "{message}");
        }
    }
}
