//! Explains the errors of a TLS connection and their remedies.

use std::error::Error;
use std::io;
use std::sync::Arc;

use rustls::{AlertDescription, CertificateError};

use super::files::{CA_VARIABLE, CERT_VARIABLE, KEY_VARIABLE};

/// Returns the remedy if one side has rejected the other. `None` means that a retry may help.
pub(crate) fn refusal(error: &(dyn Error + 'static)) -> Option<String> {
    match find(error)? {
        rustls::Error::InvalidCertificate(why) => Some(certificate(why)),
        rustls::Error::AlertReceived(alert) => alerted(*alert),
        rustls::Error::InvalidMessage(_) => {
            Some("it does not speak TLS at this port: give the port where it does, or a URL without TLS".into())
        }
        rustls::Error::PeerIncompatible(why) => Some(format!(
            "it speaks no TLS version that we do ({why:?}): let it speak TLS 1.2 or 1.3"
        )),
        _ => None,
    }
}

/// Finds the TLS error. The servers' clients wrap errors in their own; `io::Error` and `Arc` hide
/// their inner error from `source`.
fn find<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    if let Some(found) = error.downcast_ref() {
        return Some(found);
    }
    let inner = if let Some(error) = error.downcast_ref::<io::Error>() {
        error.get_ref().map(|inner| inner as &'a (dyn Error + 'static))
    } else if let Some(error) = error.downcast_ref::<Arc<dyn Error + Send + Sync>>() {
        Some(&**error as &'a (dyn Error + 'static))
    } else if let Some(error) = error.downcast_ref::<Arc<io::Error>>() {
        Some(&**error as &'a (dyn Error + 'static))
    } else {
        error.source()
    };
    find(inner?)
}

/// Explains why we reject the server.
fn certificate(why: &CertificateError) -> String {
    match why {
        // A bad signature: a trusted authority has the name of the signing one, but another key.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => format!(
            "its certificate is signed by no authority that we trust: set {CA_VARIABLE}=FILE to the certificate (PEM) of the \
             authority that signed it"
        ),
        CertificateError::NotValidForNameContext { expected, presented } => format!(
            "its certificate is for {}, not for {}: write a name of the certificate into the URL, or give the server a \
             certificate for this name",
            if presented.is_empty() {
                "no name".to_owned()
            } else {
                presented.join(", ")
            },
            expected.to_str()
        ),
        CertificateError::NotValidForName => {
            "its certificate is for another name than the URL's: give the server a certificate for this name".into()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "its certificate has expired: give the server a new one, or set this machine's clock".into()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet: set this machine's clock, or the clock of its authority".into()
        }
        CertificateError::Revoked => "its certificate was revoked: give the server a new one".into(),
        other => format!(
            "its certificate cannot be used ({other:?}): give the server one for servers, signed by an authority that the \
             system or {CA_VARIABLE} names"
        ),
    }
}

/// Explains why the server rejects us.
fn alerted(alert: AlertDescription) -> Option<String> {
    match alert {
        AlertDescription::CertificateRequired
        | AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnknownCA
        | AlertDescription::AccessDenied
        | AlertDescription::HandshakeFailure => Some(format!(
            "it requires a client certificate that it trusts ({alert:?}): set {CERT_VARIABLE}=FILE and {KEY_VARIABLE}=FILE"
        )),
        AlertDescription::ProtocolVersion | AlertDescription::InsufficientSecurity => Some(format!(
            "it speaks no TLS version that we do ({alert:?}): let it speak TLS 1.2 or 1.3"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(error: rustls::Error) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, error)
    }

    #[test]
    fn an_untrusted_certificate_is_found_wherever_it_is_wrapped() {
        let untrusted = || wrapped(CertificateError::UnknownIssuer.into());
        let shared: Arc<dyn Error + Send + Sync> = Arc::new(untrusted());
        let wrappings: [Box<dyn Error>; 4] = [
            Box::new(rustls::Error::from(CertificateError::UnknownIssuer)),
            Box::new(untrusted()),
            Box::new(shared),
            Box::new(Arc::new(untrusted())),
        ];
        for error in wrappings {
            let text = refusal(&*error).unwrap();
            assert!(text.contains("certificate") && text.contains("DYAD_CA="), "{text}");
        }
    }

    #[test]
    fn a_refusal_has_a_remedy_and_a_lost_connection_has_none() {
        for (error, expected) in [
            (CertificateError::Expired.into(), "has expired"),
            (CertificateError::NotValidForName.into(), "another name"),
            (
                rustls::Error::AlertReceived(AlertDescription::CertificateRequired),
                "DYAD_CLIENT_CERT",
            ),
            (
                rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType),
                "the port",
            ),
        ] {
            let text = refusal(&wrapped(error)).unwrap();
            assert!(text.contains(expected), "{text}");
        }
        assert_eq!(refusal(&io::Error::from(io::ErrorKind::ConnectionReset)), None);
        assert_eq!(
            refusal(&wrapped(rustls::Error::AlertReceived(AlertDescription::InternalError))),
            None
        );
    }
}
