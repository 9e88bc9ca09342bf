//! Real browsers on the daemon's page. Needs root, Chromium and Firefox.

mod common;

use std::fs::File;
use std::time::Duration;

use opfs_probe::bench::browser;
use opfs_probe::bench::launch::Launch;
use opfs_probe::bench::options::{Overrides, Parameters, Preset};
use opfs_probe::bench::profile::Profile;
use opfs_probe::bench::tree::Tree;
use opfs_probe::bench::user::BrowserUser;
use opfs_probe::files::opfs::is_opfs;
use serde_json::Value;

use common::{Daemon, as_reported, wait_until};

const CALLS: u64 = 20;
const NEW_FILES: u64 = 5;
/// A slow disk and two browsers that start at once.
const PATIENCE: Duration = Duration::from_mins(3);

/// A browser as somebody opens it beside the daemon: nothing but the page's address ties the two.
struct Opened {
    tree: Tree,
    profile: Profile,
}

impl Opened {
    fn on(url: &str, name: &str) -> Self {
        let user = BrowserUser::choose();
        let browser = browser::find(name, &user).expect("chromium and firefox must be installed");
        let profile = Profile::create(&browser, &user, None).unwrap();
        let launch =
            Launch { browser: &browser, user: &user, profile: &profile, url, headed: false, strace: None };
        let log = File::create(profile.root().join("log")).unwrap();
        let child = launch.command(&log).unwrap().spawn().unwrap();
        Self { tree: Tree::new(child, &profile.home(), false), profile }
    }

    /// Waits until the page has closed the browser, and gives the root of its profile.
    fn close(mut self) -> String {
        assert!(
            self.tree.wait(PATIENCE).is_some(),
            "the page never closed {}",
            self.profile.root().display()
        );
        self.tree.end();
        let root = as_reported(&self.profile.root().canonicalize().unwrap()).to_str().unwrap().to_owned();
        self.profile.remove().unwrap();
        root
    }
}

fn url(daemon: &Daemon) -> String {
    let workloads = ["small-append", "append+flush", "new-file"].map(str::to_owned).to_vec();
    let overrides =
        Overrides { n: Some(CALLS), m: Some(NEW_FILES), runs: Some(1), workloads, ..Overrides::default() };
    let parameters = Parameters::new(Preset::Quick, &overrides).unwrap();
    format!("{}?{}", daemon.page, parameters.query(Duration::from_secs(2)))
}

fn sessions(report: &Value) -> Vec<&Value> {
    report["sessions"].as_array().unwrap().iter().collect()
}

/// Syncs of OPFS files in the timed loops of a workload, by pass.
fn opfs_syncs(session: &Value, workload: &str) -> Vec<u64> {
    let windows = session["windows"].as_array().unwrap().iter();
    let loops = windows.filter(|window| window["name"] == "loop" && window["within"][0] == workload);
    let of_opfs = |file: &&Value| file["path"].as_str().is_some_and(|path| is_opfs(path.as_bytes()));
    loops
        .map(|window| {
            let files = window["total"]["files"].as_array().unwrap().iter();
            files.filter(of_opfs).map(|file| file["count"].as_u64().unwrap()).sum()
        })
        .collect()
}

#[test]
fn daemon_with_two_browsers() {
    let daemon = Daemon::start(&[]);
    let url = url(&daemon);
    let (chromium, firefox) = (Opened::on(&url, "chromium"), Opened::on(&url, "firefox"));

    // While they run.
    let flushes = |daemon: &Daemon| {
        let report = daemon.report(&["--window", "append*"]);
        sessions(&report).len()
    };
    wait_until("both browsers' windows in the report", || flushes(&daemon) == 2);
    let metric = "opfs_probe_window_sync_calls_total{op=\"fdatasync\",window=\"append+flush\"}";
    wait_until("Chromium's calls in the metrics", || daemon.scrape().contains(metric));
    let roots = [chromium.close(), firefox.close()];

    // And after.
    wait_until("the end of both sessions", || daemon.scrape().contains("opfs_probe_windows_open 0\n"));
    assert!(daemon.scrape().contains(metric));
    assert_eq!(flushes(&daemon), 2);
    let report = daemon.report(&["--window", "*/*/loop"]);
    let [chromium, firefox] = sessions(&report)[..] else { panic!("not two sessions: {report}") };
    let (chromium, firefox) =
        if chromium["name"] == "chromium" { (chromium, firefox) } else { (firefox, chromium) };
    for (session, root, other) in [(chromium, &roots[0], &roots[1]), (firefox, &roots[1], &roots[0])] {
        assert_eq!(session["kind"], "browser");
        let all = session["windows"].as_array().unwrap().iter().map(|window| &window["total"]);
        let files: Vec<&str> = all
            .chain([&session["total"]])
            .flat_map(|totals| totals["files"].as_array().unwrap())
            .filter_map(|file| file["path"].as_str())
            .collect();
        assert!(files.iter().any(|path| path.starts_with(root.as_str())), "{files:?}");
        assert!(!files.iter().any(|path| path.starts_with(other.as_str())), "{other} in {files:?}");
        assert_eq!(opfs_syncs(session, "append+flush"), [CALLS, CALLS]);
        assert_eq!(opfs_syncs(session, "small-append"), [0, 0]);
        assert!(session["windows"].as_array().unwrap().iter().all(|window| window["aborted"] == false));
    }
    assert_eq!(opfs_syncs(chromium, "new-file"), [0, 0]);
    let per_pass = opfs_syncs(firefox, "new-file");
    assert!(per_pass.iter().all(|syncs| *syncs > 0), "Firefox syncs its metadata: {per_pass:?}");
    assert_eq!(report["completeness"]["exact_counts"], true);
    assert_eq!(report["completeness"]["detail_lost"], 0);
}
