//! The front end, compiled into the binary: a page, its style, JavaScript modules and uPlot.

use actix_web::HttpResponse;

/// A file: its path, type and content.
type Asset = (&'static str, &'static str, &'static [u8]);

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

/// Makes the [`Asset`] of a JavaScript module.
macro_rules! module {
    ($name:literal) => {
        (
            concat!("/", $name, ".js"),
            SCRIPT,
            include_bytes!(concat!("assets/", $name, ".js")),
        )
    };
}

/// All files. The vendored ones are uPlot 1.6.31 and its licence, which the list of keys links.
pub(crate) const ASSETS: &[Asset] = &[
    ("/", HTML, include_bytes!("assets/index.html")),
    ("/app.css", CSS, include_bytes!("assets/app.css")),
    ("/uplot.min.css", CSS, include_bytes!("assets/uplot.min.css")),
    ("/uplot.iife.min.js", SCRIPT, include_bytes!("assets/uplot.iife.min.js")),
    ("/uplot.LICENSE", TEXT, include_bytes!("assets/uplot.LICENSE")),
    module!("app"),
    module!("audit"),
    module!("changes"),
    module!("charts"),
    module!("checked"),
    module!("compare"),
    module!("config"),
    module!("conversation"),
    module!("conversations"),
    module!("dom"),
    module!("evaluations"),
    module!("frame"),
    module!("group"),
    module!("letter"),
    module!("letters"),
    module!("live"),
    module!("logs"),
    module!("numbers"),
    module!("orders"),
    module!("overview"),
    module!("parts"),
    module!("plot"),
    module!("publish"),
    module!("replay"),
    module!("runs"),
    module!("server"),
    module!("tabs"),
    module!("talks"),
    module!("task"),
    module!("tokens"),
];

/// Returns true for the path of a file.
pub(crate) fn is_asset(path: &str) -> bool {
    ASSETS.iter().any(|(known, _, _)| *known == path)
}

/// Answers with the file of a path.
pub(crate) fn answer(path: &str) -> HttpResponse {
    match ASSETS.iter().find(|(known, _, _)| *known == path) {
        Some((_, kind, content)) => HttpResponse::Ok().content_type(*kind).body(*content),
        None => HttpResponse::NotFound().finish(),
    }
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    fn text(path: &str) -> &'static str {
        let (_, _, content) = ASSETS.iter().find(|(known, _, _)| *known == path).unwrap();
        std::str::from_utf8(content).unwrap()
    }

    /// Returns our scripts: path and text.
    fn modules() -> impl Iterator<Item = (&'static str, &'static str)> {
        let is_ours = |(path, kind, _): &&Asset| *kind == SCRIPT && !path.starts_with("/uplot");
        ASSETS.iter().filter(is_ours).map(|(path, _, _)| (*path, text(path)))
    }

    /// Foreign text must never become markup or code.
    #[test]
    fn script_uses_no_call_that_makes_markup_or_code_of_text() {
        let script: String = modules().map(|(_, text)| text).collect();
        for forbidden in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "Function(",
            "javascript:",
            "srcdoc",
            "setHTML",
            "createContextualFragment",
            "DOMParser",
            "importScripts",
            "import(",
        ] {
            assert!(!script.contains(forbidden), "{forbidden}");
        }
        let handlers = script.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| {
            word.strip_prefix("on")
                .is_some_and(|rest| ["click", "error", "load", "input", "change", "focus", "toggle"].contains(&rest))
        });
        assert_eq!(handlers.count(), 0);
    }

    /// Keys reach buttons and links. Nothing else takes a click.
    #[test]
    fn clicks_are_taken_by_buttons_alone() {
        for (path, script) in modules() {
            let elements = script.split("h(\"").skip(1);
            for element in elements.filter(|own| own.contains("click:")) {
                assert!(element.starts_with("button"), "{path}: {element}");
            }
        }
        let listeners: usize = modules().map(|(_, script)| script.matches("(\"click\"").count()).sum();
        assert_eq!(
            listeners, 3,
            "the button to publish, the skip link, and rows with a link"
        );
    }

    /// Requests from other sites would carry a cookie, and local storage outlives the page.
    #[test]
    fn token_is_kept_in_session_storage_alone() {
        let scripts_with = |word: &str| -> Vec<&'static str> {
            let found = modules().filter(|(_, text)| text.contains(word));
            found.map(|(path, _)| path).collect()
        };
        for word in ["sessionStorage", "Bearer", "Authorization"] {
            assert_eq!(scripts_with(word), ["/server.js"], "{word}");
        }
        assert_eq!(scripts_with("keepToken"), ["/app.js", "/server.js"]);
        assert!(!text("/server.js").contains("localStorage"));
        for word in ["cookie", "credentials", "indexedDB"] {
            assert!(scripts_with(word).is_empty(), "{word}");
        }
    }

    #[test]
    fn front_end_names_no_other_address() {
        let pages = ["/", "/app.css"].map(|path| (path, text(path)));
        for (path, page) in modules().chain(pages) {
            let known = "http://www.w3.org/2000/svg";
            let page = page.replace(known, "");
            for foreign in ["http://", "https://", "@import", "url(", "//cdn"] {
                assert!(!page.contains(foreign), "{path}: {foreign}");
            }
        }
        assert!(!text("/").contains("style="), "the policy blocks inline styles");
    }

    #[test]
    fn modules_are_small_and_import_only_modules_that_are_served() {
        for (path, script) in modules() {
            assert!(script.lines().count() <= 200, "{path} is too long for one idea");
            for line in script.lines() {
                assert!(line.chars().count() <= 115, "{path}: {line}");
            }
            let imports = script
                .split(" from \"./")
                .skip(1)
                .filter_map(|rest| rest.split('"').next());
            for imported in imports {
                assert!(is_asset(&format!("/{imported}")), "{path} imports {imported}");
            }
        }
    }

    #[test]
    fn vendored_files_are_those_of_the_release() {
        assert!(text("/uplot.iife.min.js").starts_with("/*! https://github.com/leeoniya/uPlot (v1.6.31) */"));
        for (path, recorded) in [
            (
                "/uplot.iife.min.js",
                "2d27e8ad3d228164525ce213f9dc716f39b4e3aee0cc773fb3491c96cf4921a2",
            ),
            (
                "/uplot.min.css",
                "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
            ),
        ] {
            assert_eq!(format!("{:x}", Sha256::digest(text(path))), recorded, "{path}");
        }
        let licence = text("/uplot.LICENSE");
        assert!(licence.starts_with("The MIT License") && licence.contains("Leon Sorokin"));
        assert!(text("/app.js").contains("href: \"uplot.LICENSE\""), "people reach it");
    }
}
