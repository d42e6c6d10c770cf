use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::run_folder::tests::config_in;

#[test]
fn every_series_has_the_run_and_no_value_before_it_is_set() {
    let run = RunId::new("signal-1").unwrap();
    let observer = Observer::new(&run);
    let page = observer.page();
    let values: Vec<&str> = page.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(values.iter().all(|line| line.contains("{run=\"signal-1\"")), "{page}");
    assert!(
        page.contains("process_resident_memory_bytes{") && !page.contains("dyad_loss"),
        "{page}"
    );
}

#[test]
fn a_process_is_ready_once_it_works_and_its_broker_is_there() {
    let observer = Observer::new(&RunId::new("r").unwrap());
    assert!(!observer.is_ready());
    observer.set_ready();
    assert!(observer.is_ready());
    assert_eq!(Observer::default().page(), "", "without an address nothing is shown");
}

#[tokio::test]
async fn metrics_are_served_and_named_in_the_run_folder_until_the_end() {
    let base = tempfile::tempdir().unwrap();
    let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
    let plan = MetricsPlan::new("127.0.0.1:0".parse().unwrap(), None).unwrap();
    let metering = Metering::begin(Some(plan), &folder, "a").unwrap();
    let address = metering.served.as_ref().unwrap().address;
    let get = |path: &'static str| async move {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await.unwrap();
        let status: u16 = reply.split(' ').nth(1).unwrap().parse().unwrap();
        (status, reply)
    };
    let (status, page) = get("/metrics").await;
    assert_eq!(status, 200);
    assert!(
        page.contains("workflow=\"signal\",mode=\"async\",lead=\"a\"} 1"),
        "{page}"
    );
    assert_eq!((get("/healthz").await.0, get("/readyz").await.0), (200, 503));
    let mut lines = page.lines();
    let built = lines.find(|line| line.starts_with("dyad_build_info{"));
    assert!(built.is_some_and(|line| line.contains("device=\"cpu\"} 1")), "{page}");
    metering.observer.set_ready();
    assert_eq!((get("/readyz").await.0, get("/other").await.0), (200, 404));
    let file = folder.path().join("prometheus.json");
    let text = || std::fs::read_to_string(&file).unwrap();
    assert!(text().contains(&address.to_string()), "{}", text());
    metering.close().await;
    assert_eq!(text(), "[]");
}
