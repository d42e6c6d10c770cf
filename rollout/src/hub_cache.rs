//! The Hugging Face Hub's cache on this machine, as `huggingface_hub` lays it out. Names of models
//! and data sets (`ORG/NAME`, `ORG/NAME@REVISION`) are looked up there; nothing is downloaded.
//!
//! `models--ORG--NAME/refs/REVISION` has a commit, and `models--ORG--NAME/snapshots/COMMIT` has the
//! files, as links into `blobs`. Data sets are laid out in the same way below
//! `datasets--ORG--NAME`.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// The revision of a name that gives none.
const MAIN: &str = "main";

/// The folder of all downloads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache(PathBuf);

/// The kind of repository that a name refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Model,
    /// A model's configuration, tokenizer and chat template only.
    ModelWithoutWeights,
    DataSet,
}

/// A name on the Hub, with a revision: a branch, a tag or a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name<'a> {
    org: &'a str,
    name: &'a str,
    revision: Option<&'a str>,
}

impl Cache {
    #[must_use]
    pub fn at(folder: PathBuf) -> Self {
        Self(folder)
    }

    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// Finds the cache by the environment, as `huggingface_hub` does.
    #[must_use]
    pub fn of_environment() -> Self {
        Self::by(|name| std::env::var_os(name))
    }

    /// `HF_HUB_CACHE`, else `hub` below `HF_HOME`, else below `huggingface` of `XDG_CACHE_HOME`,
    /// else of `~/.cache`.
    fn by(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let given = |name: &str| variable(name).filter(|value| !value.is_empty());
        let home = given("HOME").map(PathBuf::from).unwrap_or_default();
        let folder = |name: &str| {
            let path = PathBuf::from(given(name)?);
            Some(path.strip_prefix("~").map_or(path.clone(), |rest| home.join(rest)))
        };
        let own = ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"].into_iter().find_map(folder);
        let below_home = || Some(folder("HF_HOME")?.join("hub"));
        let by_default = || {
            let caches = folder("XDG_CACHE_HOME").unwrap_or_else(|| home.join(".cache"));
            caches.join("huggingface/hub")
        };
        Self(own.or_else(below_home).unwrap_or_else(by_default))
    }

    /// Returns the folder of a name's files, if they were downloaded. Some files may be missing.
    #[must_use]
    pub fn snapshot(&self, kind: Kind, name: &Name<'_>) -> Option<PathBuf> {
        let plural = match kind {
            Kind::Model | Kind::ModelWithoutWeights => "models",
            Kind::DataSet => "datasets",
        };
        let repository = self.0.join(format!("{plural}--{}--{}", name.org, name.name));
        let revision = name.revision.unwrap_or(MAIN);
        let branch = std::fs::read_to_string(repository.join("refs").join(revision));
        let commit = branch.as_deref().map_or(revision, str::trim);
        // A text that is no commit is no folder of `snapshots` either.
        let is_hash = !commit.is_empty() && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
        let folder = repository.join("snapshots").join(commit);
        (is_hash && folder.is_dir()).then_some(folder)
    }
}

impl<'a> Name<'a> {
    /// Returns `None` if the text is no name on the Hub.
    #[must_use]
    pub fn read(text: &'a str) -> Option<Self> {
        let (repository, revision) = match text.split_once('@') {
            Some((repository, revision)) => (repository, Some(revision)),
            None => (text, None),
        };
        let (org, name) = repository.split_once('/')?;
        let legal = |part: &str| {
            let first = part.chars().next();
            first.is_some_and(|first| first.is_ascii_alphanumeric() || first == '_')
                && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        };
        // A revision is a path below `refs`, and must stay there.
        let inside = |revision: &str| {
            let mut parts = Path::new(revision).components();
            !revision.is_empty() && parts.all(|part| matches!(part, Component::Normal(_)))
        };
        (legal(org) && legal(name) && revision.is_none_or(inside)).then_some(Self { org, name, revision })
    }

    /// Returns the name without a revision.
    #[must_use]
    pub fn repository(&self) -> String {
        format!("{}/{}", self.org, self.name)
    }

    /// Returns the branch, tag or commit; `main` if none was given.
    #[must_use]
    pub fn revision(&self) -> &'a str {
        self.revision.unwrap_or(MAIN)
    }

    /// Returns the command that downloads it into the cache.
    #[must_use]
    pub fn download(&self, kind: Kind) -> String {
        let (option, files) = match kind {
            Kind::Model => ("", ""),
            Kind::ModelWithoutWeights => ("", " --exclude '*.safetensors'"),
            Kind::DataSet => ("--repo-type dataset ", ""),
        };
        let revision = self.revision.map(|revision| format!(" --revision {revision}"));
        format!(
            "hf download {option}{}/{}{}{files}",
            self.org,
            self.name,
            revision.unwrap_or_default()
        )
    }

    /// Returns the error text for a name that is neither a folder nor in the cache.
    #[must_use]
    pub fn absent(&self, kind: Kind, cache: &Cache) -> String {
        format!(
            "{self} is neither a folder here nor in the Hugging Face cache {}; dyad downloads nothing: `{}` does (older \
             installations: huggingface-cli download)",
            cache.0.display(),
            self.download(kind)
        )
    }
}

/// Returns the name of the repository that a URL of the Hub shows, with its revision.
#[must_use]
pub fn name_in_url(text: &str) -> Option<String> {
    let rest = text.strip_prefix("https:").or_else(|| text.strip_prefix("http:"))?;
    // A path may have lost one of the two slashes.
    let rest = rest.trim_start_matches('/');
    let rest = ["huggingface.co/", "www.huggingface.co/", "hf.co/"]
        .iter()
        .find_map(|host| rest.strip_prefix(host))?;
    let rest = rest.strip_prefix("datasets/").unwrap_or(rest);
    let mut parts = rest.split(['/', '?', '#']).filter(|part| !part.is_empty());
    let (org, name) = (parts.next()?, parts.next()?);
    let revision = match parts.next() {
        Some("tree" | "blob" | "resolve") => parts.next().filter(|revision| *revision != MAIN),
        _ => None,
    };
    let revision = revision.map_or_else(String::new, |revision| format!("@{revision}"));
    let found = format!("{org}/{name}{revision}");
    Name::read(&found).is_some().then_some(found)
}

/// Returns the fault of a path at which something other than a folder stands, for example a file.
/// Returns `None` for a folder and for a path with nothing there.
#[must_use]
pub fn no_folder(path: &Path) -> Option<String> {
    let shown = path.display();
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => None,
        Ok(_) => Some(format!("{shown} is a file: name the folder that holds the files")),
        Err(error) => {
            let target = std::fs::read_link(path).ok()?;
            let target = target.display();
            Some(format!(
                "{shown} is a link to {target}, which cannot be opened ({error})"
            ))
        }
    }
}

impl std::fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.org, self.name)?;
        self.revision.map_or(Ok(()), |revision| write!(f, "@{revision}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_where_the_hubs_own_library_has_it() {
        let by = |variables: &'static [(&'static str, &'static str)]| {
            let found = move |name: &str| variables.iter().find(|(given, _)| *given == name);
            Cache::by(move |name| Some(found(name)?.1.into()))
        };
        let cases: [(&'static [(&'static str, &'static str)], &str); 6] = [
            (&[("HOME", "/home/x")], "/home/x/.cache/huggingface/hub"),
            (&[("HOME", "/home/x"), ("XDG_CACHE_HOME", "/c")], "/c/huggingface/hub"),
            (
                &[("HOME", "/home/x"), ("XDG_CACHE_HOME", "/c"), ("HF_HOME", "/h")],
                "/h/hub",
            ),
            (&[("HOME", "/home/x"), ("HF_HOME", "~/hf")], "/home/x/hf/hub"),
            (&[("HF_HOME", "/h"), ("HF_HUB_CACHE", "/hub")], "/hub"),
            (&[("HF_HOME", "/h"), ("HF_HUB_CACHE", "")], "/h/hub"),
        ];
        for (variables, expected) in cases {
            assert_eq!(by(variables).folder(), Path::new(expected), "{variables:?}");
        }
    }

    #[test]
    fn names_are_those_of_the_hub_and_lead_nowhere_else() {
        for (text, command) in [
            ("Qwen/Qwen3-8B", "hf download --repo-type dataset Qwen/Qwen3-8B"),
            (
                "a/b_c.d@v1.0",
                "hf download --repo-type dataset a/b_c.d --revision v1.0",
            ),
            (
                "a/b@refs/pr/1",
                "hf download --repo-type dataset a/b --revision refs/pr/1",
            ),
        ] {
            let name = Name::read(text).unwrap();
            assert_eq!(
                (name.to_string().as_str(), name.download(Kind::DataSet).as_str()),
                (text, command)
            );
        }
        let without = Name::read("a/b@v1").unwrap().download(Kind::ModelWithoutWeights);
        assert_eq!(without, "hf download a/b --revision v1 --exclude '*.safetensors'");
        for text in [
            "", "a", "a/", "/a", "a/b/c", "../a", "a/..", "a/b@", "a/b@../c", "a/b@/c", "a b/c", "~/a",
        ] {
            assert_eq!(Name::read(text), None, "{text}");
        }
    }

    #[test]
    fn url_of_the_hub_gives_the_name_to_write() {
        for (url, name) in [
            ("https://huggingface.co/Qwen/Qwen3-8B", Some("Qwen/Qwen3-8B")),
            ("https:/huggingface.co/Qwen/Qwen3-8B/", Some("Qwen/Qwen3-8B")),
            ("http://hf.co/a/b/tree/main", Some("a/b")),
            ("https://huggingface.co/datasets/a/b/tree/v1/data?x=1", Some("a/b@v1")),
            ("https://huggingface.co/Qwen", None),
            ("https://example.org/a/b", None),
            ("Qwen/Qwen3-8B", None),
        ] {
            assert_eq!(name_in_url(url).as_deref(), name, "{url}");
        }
    }

    #[test]
    fn file_or_broken_link_is_no_folder_to_download() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), "").unwrap();
        std::os::unix::fs::symlink(at("loop"), at("loop")).unwrap();
        assert_eq!((no_folder(folder.path()), no_folder(&at("gone"))), (None, None));
        assert!(no_folder(&at("file")).unwrap().contains("file is a file: "));
        assert!(no_folder(&at("loop")).unwrap().contains("loop is a link to "));
    }

    #[test]
    fn a_snapshot_is_that_of_its_kind_and_revision() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().to_owned());
        let repository = folder.path().join("datasets--a--b");
        std::fs::create_dir_all(repository.join("refs")).unwrap();
        std::fs::create_dir_all(repository.join("snapshots/abc1")).unwrap();
        std::fs::write(repository.join("refs/main"), "abc1\n").unwrap();
        std::fs::write(repository.join("refs/bad"), "../../..").unwrap();
        let at = |kind, text: &str| cache.snapshot(kind, &Name::read(text).unwrap());
        let found = Some(repository.join("snapshots/abc1"));
        assert_eq!(at(Kind::DataSet, "a/b"), found);
        assert_eq!(at(Kind::DataSet, "a/b@abc1"), found);
        let model = folder.path().join("models--a--m/snapshots/abc3");
        std::fs::create_dir_all(&model).unwrap();
        for kind in [Kind::Model, Kind::ModelWithoutWeights] {
            assert_eq!(
                at(kind, "a/m@abc3"),
                Some(model.clone()),
                "{kind:?}: the weights are next to the other files"
            );
        }
        for (kind, text) in [
            (Kind::Model, "a/b"),
            (Kind::DataSet, "a/c"),
            (Kind::DataSet, "a/b@v2"),
            (Kind::DataSet, "a/b@abc2"),
            (Kind::DataSet, "a/b@bad"),
        ] {
            assert_eq!(at(kind, text), None, "{text}");
        }
    }
}
