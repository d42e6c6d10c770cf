//! A certificate authority for one test, and the certificates that it signs.

use std::path::PathBuf;

use broker::local::ServerTls;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// The address of the private servers.
const HERE: &str = "127.0.0.1";

/// An authority that signs every request; its files are in its own folder.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: tempfile::TempDir,
}

/// A certificate and its key.
pub(crate) struct Signed {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "an authority of a test");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { issuer, folder }
    }

    /// Returns its own certificate.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Returns a certificate for a name or an address, valid between the first days of two years.
    pub(crate) fn sign_for(&self, name: &str, from: i32, until: i32) -> Signed {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = rcgen::date_time_ymd(from, 1, 1);
        params.not_after = rcgen::date_time_ymd(until, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let at = |kind: &str| self.folder.path().join(format!("{name}-{until}.{kind}.pem"));
        let signed = Signed {
            certificate: at("cert"),
            key: at("key"),
        };
        std::fs::write(&signed.certificate, certificate.pem()).unwrap();
        std::fs::write(&signed.key, key.serialize_pem()).unwrap();
        signed
    }

    /// Returns a certificate for a name or an address that is valid today.
    pub(crate) fn sign(&self, name: &str) -> Signed {
        self.sign_for(name, 2020, 4000)
    }

    /// Returns the files of a server on this machine.
    pub(crate) fn server(&self) -> ServerTls {
        self.sign(HERE).server()
    }
}

impl Signed {
    /// Returns the files of a server that requires no client certificate.
    pub(crate) fn server(self) -> ServerTls {
        ServerTls {
            certificate: self.certificate,
            key: self.key,
            clients_of: None,
        }
    }
}
