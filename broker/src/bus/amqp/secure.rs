//! A TLS stream in the form that lapin accepts: the only stream of a runtime, so that nothing can
//! leave in plaintext.

use std::future::Future;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_rs::traits::Reactor;
use async_rs::util::RuntimeParts;
use async_rs::{Runtime, Tokio};
use futures_io::{AsyncRead, AsyncWrite};
use futures_util::Stream;
use lapin::tcp::AsyncTcpStream;
use lapin::uri::AMQPUri;
use lapin::{Connection, ConnectionProperties};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::compat::{Compat, TokioAsyncReadCompatExt};

type Secure = Compat<TlsStream<TcpStream>>;

/// Connects and logs in. The TLS handshake comes before any AMQP.
pub(super) async fn connect(
    uri: AMQPUri,
    config: Arc<ClientConfig>,
    properties: ConnectionProperties,
) -> lapin::Result<Connection> {
    let tokio = Tokio::current();
    let runtime = Runtime::new(RuntimeParts::new(tokio.clone(), SecureReactor(tokio)));
    let connect = async move |uri: AMQPUri, _| {
        let stream = open(&uri.authority.host, uri.authority.port, config.clone()).await?;
        Ok(AsyncTcpStream::Plain(stream))
    };
    Connection::connector(uri, runtime, connect, properties).await
}

async fn open(host: &str, port: u16, config: Arc<ClientConfig>) -> io::Result<Secure> {
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    let stream = TlsConnector::from(config).connect(name, stream).await?;
    Ok(stream.compat())
}

/// Tokio's reactor with TLS streams only, which [`open`] makes.
#[derive(Debug, Clone)]
struct SecureReactor(Tokio);

impl Reactor for SecureReactor {
    type TcpStream = Secure;
    type Sleep = <Tokio as Reactor>::Sleep;

    fn register<H: Read + Write + AsFd + AsRawFd + Send + 'static>(
        &self,
        socket: H,
    ) -> io::Result<impl AsyncRead + AsyncWrite + Send + Unpin + 'static> {
        self.0.register(socket)
    }

    fn sleep(&self, duration: Duration) -> Self::Sleep {
        self.0.sleep(duration)
    }

    fn interval(&self, duration: Duration) -> impl Stream<Item = Instant> + Send + 'static {
        self.0.interval(duration)
    }

    /// Fails: an address has no name to compare with a certificate.
    fn tcp_connect_addr(&self, _: SocketAddr) -> impl Future<Output = io::Result<Secure>> + Send + 'static {
        std::future::ready(Err(io::ErrorKind::Unsupported.into()))
    }
}
