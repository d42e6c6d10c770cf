//! Images of a row: moves them from their own column into the messages of the prompt.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use broker::codec::excerpt;
use broker::protocol::task::Prompt;
use broker::protocol::turn::{Image, Message, MessageFault};
use serde_json::{Value, json};

/// The mark for an image in a text, in data sets of verl, slime and TRL.
const PLACE: &str = "<image>";

/// Returns the references in a column: one or a list of URLs, `{url}` or Hugging Face's `{bytes,
/// path}`.
pub(super) fn urls(column: &Value) -> Result<Vec<String>, MessageFault> {
    let read = |image: &Value, place: &str| -> Result<String, MessageFault> {
        let found = url(image).map_err(|problem| MessageFault::new(place, problem))?;
        Image::check(&found).map_err(|fault| fault.within(place))?;
        Ok(found)
    };
    match column {
        Value::Array(list) => {
            let images = list.iter().enumerate();
            images
                .map(|(index, image)| read(image, &format!("[{index}]")))
                .collect()
        }
        one => Ok(vec![read(one, "")?]),
    }
}

fn url(image: &Value) -> Result<String, String> {
    if let Some(url) = image.as_str().or_else(|| image.get("url")?.as_str()) {
        return Ok(url.to_owned());
    }
    match image.get("bytes") {
        Some(Value::String(bytes)) => data_url(bytes),
        Some(_) => Err("has a path and no bytes: write the data set with its images embedded".into()),
        None => Err(format!(
            "is {}, neither a URL nor {{url}} nor {{bytes, path}}: write one of them",
            excerpt(image)
        )),
    }
}

/// `bytes` are in base64, as binary columns are read.
fn data_url(bytes: &str) -> Result<String, String> {
    let begin = bytes.get(..bytes.len().min(24)).unwrap_or_default();
    let head = STANDARD.decode(begin).unwrap_or_default();
    let kind = match head.as_slice() {
        [0x89, b'P', b'N', b'G', ..] => "png",
        [0xff, 0xd8, 0xff, ..] => "jpeg",
        [b'G', b'I', b'F', b'8', ..] => "gif",
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => "webp",
        _ => return Err("has bytes that are neither PNG, JPEG, GIF nor WebP".into()),
    };
    Ok(format!("data:image/{kind};base64,{bytes}"))
}

/// Returns the prompt with these images: at each `<image>`, in order, else before the text of its
/// last user message.
pub(super) fn show(prompt: Prompt, urls: Vec<String>) -> Result<Prompt, MessageFault> {
    let whole = |problem: &str| MessageFault::new("", problem);
    if urls.is_empty() {
        return Ok(prompt);
    }
    let mut messages = match prompt {
        Prompt::Text(text) => vec![Message::user(text)],
        Prompt::Messages(messages) => messages,
    };
    if messages.iter().any(|message| !message.images.is_empty()) {
        return Err(whole(
            "is given, and the prompt's messages have images of their own: remove tasks.images",
        ));
    }
    let places: usize = messages
        .iter()
        .map(|message| message.content.matches(PLACE).count())
        .sum();
    if places == 0 {
        let last = messages.iter_mut().rfind(|message| message.role == "user");
        let last = last.ok_or_else(|| whole("has no place: no message of the prompt is the user's"))?;
        *last = with_parts(last, &[String::new(), last.content.clone()], &mut urls_at_once(urls))?;
        return Ok(Prompt::Messages(messages));
    }
    if places != urls.len() {
        return Err(whole(&format!(
            "has {} images, and the prompt says {PLACE} {places} times: write as many",
            urls.len()
        )));
    }
    let mut urls = urls.into_iter().map(|url| vec![url]);
    for message in messages.iter_mut().filter(|message| message.content.contains(PLACE)) {
        let texts: Vec<String> = message.content.split(PLACE).map(str::to_owned).collect();
        *message = with_parts(message, &texts, &mut urls)?;
    }
    Ok(Prompt::Messages(messages))
}

fn urls_at_once(urls: Vec<String>) -> impl Iterator<Item = Vec<String>> {
    std::iter::once(urls)
}

/// Returns the message with images between its texts.
fn with_parts(
    message: &Message,
    texts: &[String],
    images: &mut impl Iterator<Item = Vec<String>>,
) -> Result<Message, MessageFault> {
    let text = |text: &String| (!text.is_empty()).then(|| json!({ "type": "text", "text": text }));
    let mut parts = Vec::new();
    for (place, one) in texts.iter().enumerate() {
        if place > 0 {
            let shown = images.next().unwrap_or_default().into_iter();
            parts.extend(shown.map(|url| json!({ "type": "image_url", "image_url": { "url": url } })));
        }
        parts.extend(text(one));
    }
    let shown = Message::read(&json!({ "role": message.role, "content": parts }));
    shown.map_err(|fault| MessageFault::new("", fault.problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RED: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC";

    fn places(prompt: &Prompt) -> Vec<(usize, u32)> {
        let Prompt::Messages(messages) = prompt else {
            return Vec::new();
        };
        let of = |(at, message): (usize, &Message)| message.images.iter().map(|i| (at, i.at)).collect::<Vec<_>>();
        messages.iter().enumerate().flat_map(of).collect()
    }

    #[test]
    fn images_stand_where_the_prompt_says_or_before_its_text() {
        let column = json!([{"bytes": RED, "path": "a.png"}, "https://x.org/b.jpg"]);
        let urls = urls(&column).unwrap();
        assert!(urls[0].starts_with("data:image/png;base64,iVBOR"));
        let shown = show(Prompt::Text("which?".into()), urls.clone()).unwrap();
        assert_eq!((places(&shown), shown.text()), (vec![(0, 0), (0, 0)], "which?"));
        let verl = Prompt::Messages(vec![
            Message::system("look"),
            Message::user("<image>left, right: <image>?"),
        ]);
        let shown = show(verl, urls).unwrap();
        assert_eq!(
            (places(&shown), shown.text()),
            (vec![(1, 0), (1, 13)], "left, right: ?")
        );
    }

    #[test]
    fn empty_part_may_hold_the_place_of_an_image_of_the_column() {
        let parts = json!([{"type": "image", "text": ""}, {"type": "text", "text": "what?"}]);
        let prompt = Prompt::read(&json!([{"role": "user", "content": parts}])).unwrap();
        let shown = show(prompt, vec!["https://x.org/a.png".into()]).unwrap();
        assert_eq!((places(&shown), shown.text()), (vec![(0, 0)], "what?"));
    }

    #[test]
    fn what_is_no_image_or_has_no_place_is_reported() {
        for (column, says) in [
            (json!({"bytes": null, "path": "a.png"}), "no bytes"),
            (json!(3), "is 3, neither a URL"),
            (json!({"bytes": "QUJD"}), "neither PNG"),
            (
                json!(["https://x", "file:///etc/passwd"]),
                "[1] is \"file:///etc/passwd\": an image's url",
            ),
        ] {
            assert!(urls(&column).unwrap_err().to_string().contains(says), "{column}");
        }
        let wrong = |text: &str, url: &str| {
            show(Prompt::Text(text.into()), vec![url.into()])
                .unwrap_err()
                .to_string()
        };
        assert!(wrong("<image><image>", "https://x").contains("2 times"));
        assert!(wrong("what?", "file:///etc/passwd").contains("image"));
    }
}
