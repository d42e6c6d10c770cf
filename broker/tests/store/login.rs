//! Users, passwords and databases that Redis refuses.

use broker::store::redis::RedisStore;
use broker::store::{Store, StoreError};

use crate::harness::*;

fn refused<T: std::fmt::Debug>(answer: Result<T, StoreError>) -> String {
    match answer {
        Err(error @ StoreError::Login { .. }) => error.to_string(),
        other => panic!("the login must be refused: {other:?}"),
    }
}

#[tokio::test]
async fn bad_credentials_are_explained_without_the_password() {
    let redis = RedisFixture::start().await;
    let url = redis.server.url();
    let secret = url.split([':', '@']).nth(2).unwrap().to_owned();
    let wrong = url.replace(&secret, "wr0ng-secret");
    let text = refused(RedisStore::connect(&wrong, &run(), options()).await);
    assert!(
        text.contains("the user, the password") && !text.contains("wr0ng-secret"),
        "{text}"
    );
    let nowhere = format!("{}/99", url.rsplit_once('/').map_or(url.as_str(), |(server, _)| server));
    let text = refused(RedisStore::connect(&nowhere, &run(), options()).await);
    assert!(text.contains("database"), "{text}");
    let without = url.replace(&format!(":{secret}@"), "");
    let lacking = RedisStore::connect(&without, &run(), options()).await;
    let text = match lacking {
        Ok(store) => refused(store.claim(group(1), "x", attempt(7), None).await),
        none => refused(none),
    };
    assert!(text.contains("the user, the password"), "{text}");

    let () = redis
        .raw_command(&[
            "ACL",
            "SETUSER",
            "reader",
            "on",
            ">pw-of-reader",
            "~*",
            "+@read",
            "+info",
        ])
        .await;
    let reader = url.replace(&format!(":{secret}@"), "reader:pw-of-reader@");
    let store = RedisStore::connect(&reader, &run(), options()).await.unwrap();
    let text = unusable(store.claim(group(1), "x", attempt(7), None).await);
    assert!(text.contains("EVALSHA") && !text.contains("pw-of-reader"), "{text}");
    // Settings that CONFIG may not report are left out without an error.
    assert_eq!(store.check().await, Ok(vec![]));
    for shown in [
        format!("{store:?}"),
        format!("{:?}", redis.store),
        format!("{:?}", redis.server),
    ] {
        assert!(!shown.contains("pw-of-reader") && !shown.contains(&secret), "{shown}");
    }
}
