//! The files, folders and programs that a configuration names, and their mounts.
//!
//! compose.yaml mounts `configs/` and the volume `runs` at the working directory, so relative paths
//! below them work in the containers. Absolute paths that exist on this host are mounted where they
//! are, unless the container has its own. Other relative paths are refused.

use std::path::{Component, Path, PathBuf};

use configs::{AgentConfig, AgentName, ModelConfig, RunConfig};
use rollout::hub_cache::{Name, name_in_url};

use crate::cli::host_check;
use crate::participant;

/// The home of the containers' user, and the working directory.
const HOME: &str = "/var/lib/dyad";
const CONFIGS: &str = "/var/lib/dyad/configs";
/// The volume that all services share.
const RUNS: &str = "/var/lib/dyad/runs";
/// Paths below these folders are the container's own, not the host's.
const OWN: [&str; 3] = ["/configs", "/opt/dyad", HOME];
/// Folders that every container needs as its image has them.
const OF_IMAGE: [&str; 10] = [
    "/bin",
    "/configs",
    "/dev",
    "/etc",
    "/lib",
    "/opt/dyad",
    "/proc",
    "/sys",
    "/usr",
    HOME,
];

/// The services that read a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reader {
    Coordinator,
    /// The coordinator, and agents with a warm start: they render the workflow's prompts.
    Workflow,
    /// The agent.
    Agent(AgentName),
    /// The agent, and its engines of kind dyad.
    Engine(AgentName),
    /// The agent, and all its engines.
    Server(AgentName),
}

/// A path that the configuration names.
#[derive(Debug, Clone)]
pub(super) struct NamedPath {
    key: String,
    path: PathBuf,
    pub(super) reader: Reader,
    read_only: bool,
}

/// A file or folder that has the same path on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) path: PathBuf,
    pub(super) read_only: bool,
}

/// Returns every path that the configuration names. Names of the Hugging Face Hub are no paths.
pub(super) fn named(config: &RunConfig) -> Vec<NamedPath> {
    let agents = config.participants().into_iter();
    let agents = agents.flat_map(|name| of_agent(&name, &config.agents[&name]));
    let all = of_tasks(config).into_iter().chain(of_workflow(config));
    all.chain(programs(config))
        .chain(of_tools(config))
        .chain(agents)
        .collect()
}

/// Returns the programs that the workflow, graders, suites and tools start.
pub(super) fn programs(config: &RunConfig) -> Vec<NamedPath> {
    let all = participant::programs(config, |_| true).into_iter();
    let program = |(key, file): (String, &str)| {
        let reader = match key.starts_with("tools.") {
            true => Reader::Coordinator,
            false => Reader::Workflow,
        };
        read(&key, Path::new(file), reader)
    };
    all.map(program).collect()
}

/// Returns true if this is a name of the Hugging Face Hub, and no folder here has it.
pub(super) fn is_of_hub(path: &Path) -> bool {
    path.is_relative() && !path.exists() && path.to_str().and_then(Name::read).is_some()
}

/// Returns true if a source of tasks is a name of the Hugging Face Hub.
pub(super) fn is_source_of_hub(source: &str) -> bool {
    source.starts_with("hf:") && rollout::tasks::place(source).is_some_and(is_of_hub)
}

/// Returns the absolute path that containers use for a path of the configuration.
pub(super) fn inside(path: &Path) -> PathBuf {
    Path::new(HOME).join(path)
}

/// Returns true if containers of vLLM have the path: they mount it, or the volume has it.
pub(super) fn is_seen_by_vllm(path: &Path) -> bool {
    let path = inside(path);
    path.starts_with(RUNS) || !OWN.iter().any(|own| path.starts_with(own))
}

/// Returns the mounts of a service. A path below a mounted folder needs none of its own.
pub(super) fn mounts(named: &[NamedPath], reads: impl Fn(&Reader) -> bool) -> Vec<Mount> {
    let read = named.iter().filter(|one| reads(&one.reader));
    let mut mounts: Vec<Mount> = read.filter_map(NamedPath::mount).collect();
    // A folder comes before the paths in it, and a written folder before the same one to read.
    mounts.sort_by(|a, b| (&a.path, a.read_only).cmp(&(&b.path, b.read_only)));
    let mut kept: Vec<Mount> = Vec::new();
    for mount in mounts {
        let covers = |other: &Mount| mount.path.starts_with(&other.path) && (mount.read_only || !other.read_only);
        if !kept.iter().any(covers) {
            kept.push(mount);
        }
    }
    kept
}

fn of_tasks(config: &RunConfig) -> Vec<NamedPath> {
    let mut all = Vec::new();
    for (key, source) in host_check::sources(config, |_| true) {
        all.extend(of_source(&key, source, Reader::Coordinator));
    }
    let curriculum = config.tasks.curriculum.iter();
    all.extend(curriculum.map(|one| read("tasks.curriculum.pass_rates", &one.pass_rates, Reader::Coordinator)));
    all
}

fn of_source(key: &str, source: &str, reader: Reader) -> Option<NamedPath> {
    let path = rollout::tasks::place(source)?;
    (!is_source_of_hub(source)).then(|| read(key, path, reader))
}

/// Returns the templates, examples and judges' templates.
fn of_workflow(config: &RunConfig) -> Vec<NamedPath> {
    let workflow = |key: String, path: &Path| read(&key, path, Reader::Workflow);
    let mut all = Vec::new();
    for table in ["templates", "examples"] {
        let files = config.workflow.params.get(table).and_then(toml::Value::as_table);
        let files = files.into_iter().flatten();
        let files = files.filter_map(|(name, value)| Some((name, value.as_str()?)));
        all.extend(files.map(|(name, file)| workflow(format!("workflow.params.{table}.{name}"), file.as_ref())));
    }
    let judges = config.graders.iter();
    all.extend(judges.filter_map(|(name, grader)| {
        let template = grader.judge.as_ref()?.template.as_ref()?;
        Some(workflow(format!("graders.{name}.judge.template"), template))
    }));
    all
}

fn of_tools(config: &RunConfig) -> impl Iterator<Item = NamedPath> {
    config.tools.iter().filter_map(|(name, tool)| {
        let path = tool.kind.strip_prefix("corpus:")?;
        Some(read(&format!("tools.{name}.kind"), path.as_ref(), Reader::Coordinator))
    })
}

fn of_agent(name: &AgentName, agent: &AgentConfig) -> Vec<NamedPath> {
    let key = |key: &str| format!("agents.{name}.{key}");
    let mut all = Vec::new();
    if let ModelConfig::Path(path) = &agent.model
        && !is_of_hub(path)
    {
        all.push(read(&key("model.path"), path, Reader::Server(name.clone())));
    }
    let adapter = agent.lora.as_ref().and_then(|lora| lora.path.as_ref());
    all.extend(adapter.map(|path| read(&key("lora.path"), path, Reader::Server(name.clone()))));
    let template = agent.chat_template.iter();
    all.extend(template.map(|path| read(&key("chat_template"), path, Reader::Engine(name.clone()))));
    if let Some(warm) = &agent.train.warm_start {
        all.extend(of_source(
            &key("train.warm_start.source"),
            &warm.source,
            Reader::Agent(name.clone()),
        ));
    }
    let words = of_command(&agent.train.command);
    all.extend(words.map(|word| read(&key("train.command"), word, Reader::Agent(name.clone()))));
    let weights = agent.engine.weights_folder.iter();
    all.extend(weights.map(|path| NamedPath {
        read_only: false,
        ..read(&key("engine.weights_folder"), path, Reader::Server(name.clone()))
    }));
    all
}

/// Returns the words of a command that are paths: its program, and absolute names of files.
fn of_command(words: &[String]) -> impl Iterator<Item = &Path> {
    let is_path = |(index, word): &(usize, &Path)| {
        let system = ["/bin", "/lib", "/sbin", "/usr"]
            .iter()
            .any(|folder| word.starts_with(folder));
        // A program without `/` is looked up in PATH.
        let is_program = *index == 0 && word.as_os_str().to_string_lossy().contains('/');
        match word.is_absolute() {
            true => !system && (is_program || word.is_file()),
            false => is_program && word.is_file(),
        }
    };
    let words = words.iter().map(Path::new).enumerate();
    words.filter(is_path).map(|(_, word)| word)
}

fn read(key: &str, path: &Path, reader: Reader) -> NamedPath {
    NamedPath {
        key: key.to_owned(),
        path: path.to_owned(),
        reader,
        read_only: true,
    }
}

impl NamedPath {
    /// Returns the reason why containers cannot have the path, and the fix.
    pub(super) fn problem(&self) -> Option<String> {
        let (key, shown) = (&self.key, self.path.display());
        if let Some(name) = self.path.to_str().and_then(name_in_url) {
            return Some(format!("{key} is {shown}, which is a URL: write {name}"));
        }
        if self.path.components().any(|part| part == Component::ParentDir) {
            return Some(format!("{key} is {shown}: write it without `..`"));
        }
        if self.path.is_relative() {
            let inside = inside(&self.path);
            let fix = match self.read_only {
                _ if inside.starts_with(RUNS) => return None,
                true if inside.starts_with(CONFIGS) => return None,
                true => "move it below configs/, which is mounted, or write its absolute path",
                false => "write its absolute path",
            };
            return Some(format!("{key} is {shown}: {fix}"));
        }
        let mount = self.place()?;
        // The user's home has keys and tokens that no container may read.
        if home().starts_with(&mount) {
            return Some(format!(
                "{key} is {shown}, and containers would see all of {}: put the files into a folder of their own",
                mount.display()
            ));
        }
        let hides = OF_IMAGE.iter().any(|own| Path::new(own).starts_with(&mount));
        hides.then(|| {
            format!(
                "{key} is {shown}, and mounting {} would hide the container's own files: move it below configs/",
                mount.display()
            )
        })
    }

    /// Returns a note if this host does not have the path.
    pub(super) fn note(&self) -> Option<String> {
        self.place().filter(|place| !place.exists())?;
        let need = match self.read_only {
            true if in_image() => return None,
            true => "the image or a volume must have it",
            false => "make it, writable for user 10001; docker compose would make it for root",
        };
        Some(format!(
            "{} ({}) is not on this host: {need}",
            self.path.display(),
            self.key
        ))
    }

    fn mount(&self) -> Option<Mount> {
        let path = self
            .place()
            .filter(|place| is_mounted(self.read_only, place.exists(), in_image()))?;
        Some(Mount {
            path,
            read_only: self.read_only,
        })
    }

    /// Returns the path to mount; none if the container has its own.
    fn place(&self) -> Option<PathBuf> {
        let own = OWN.iter().any(|own| self.path.starts_with(own));
        (self.path.is_absolute() && !own).then(|| whole(&self.path))
    }
}

/// Returns the user's home folder; `/` if it is unknown.
fn home() -> PathBuf {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    home.map_or_else(|| "/".into(), PathBuf::from)
}

/// Returns true if this program runs in its image, which does not show the paths of the host.
fn in_image() -> bool {
    std::env::current_exe().is_ok_and(|program| program.starts_with("/opt/dyad"))
}

/// Returns true for what the host has or may have, and for folders to write, which docker compose
/// makes.
fn is_mounted(read_only: bool, exists: bool, in_image: bool) -> bool {
    exists || !read_only || in_image
}

/// Returns the path to mount: the folder of a pattern, or the repository of a snapshot, because the
/// Hub's cache has its files as links into the folder next to `snapshots`.
fn whole(path: &Path) -> PathBuf {
    let is_fixed = |part: &Component| !part.as_os_str().to_string_lossy().contains(['*', '?', '[']);
    let fixed: PathBuf = match path.exists() {
        true => path.to_owned(),
        false => path.components().take_while(is_fixed).collect(),
    };
    let is_snapshots = |folder: &&Path| folder.ends_with("snapshots") && folder.with_file_name("blobs").is_dir();
    let repository = fixed.ancestors().find(is_snapshots).and_then(Path::parent);
    repository.map_or_else(|| fixed.clone(), Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_mounts_paths_that_it_cannot_see() {
        let cases = [
            (true, true, false),
            (true, false, false),
            (true, false, true),
            (false, false, false),
        ];
        let mounted = cases.map(|(read_only, exists, in_image)| is_mounted(read_only, exists, in_image));
        assert_eq!(mounted, [true, false, true, true]);
    }
}
