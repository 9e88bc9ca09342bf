//! The command-line tool: parses and dispatches, nothing else.
use opfs_probe::attribution::window::Epoch;
use std::collections::HashMap;
fn main() -> anyhow::Result<()> {
    let t = std::time::Instant::now();
    let mut l = opfs_probe::kernel::load::Loaded::new()?;
    eprintln!("loaded in {:?}", t.elapsed());
    for p in &l.probes {
        if !p.attached {
            println!("{p:?}");
        }
    }
    l.control.enter_epoch(1, Epoch(1))?;
    l.control.bind(l.own_tgid, 1, 2)?;
    let mut c = std::process::Command::new("sh");
    c.args(std::env::args().skip(1));
    let mut ch = c.spawn()?;
    l.control.bind(l.own_tgid, u32::MAX, 0)?;
    ch.wait()?;
    l.control.enter_epoch(1, Epoch(2))?;
    opfs_probe::kernel::collector::barrier()?;
    let e = l.control.epoch_totals(Epoch(1)).unwrap();
    println!("{e:?} root {:?} ch {}", l.control.root_tgid(1), ch.id());
    let m: HashMap<_, _> = [(Epoch(1), e)].into();
    let r = l.collector.read(&m)?;
    for (k, t) in &r[&Epoch(1)].calls {
        println!("{k:?} {t:?}");
    }
    while let Some(x) = l.collector.next_record() {
        match x {
            opfs_probe::kernel::collector::Record::File { record, components } => {
                println!("{record:?} {:?}", String::from_utf8_lossy(&components))
            }
            opfs_probe::kernel::collector::Record::Process { record, args, executable } => println!(
                "{record:?} {:?} {:?}",
                String::from_utf8_lossy(&args),
                String::from_utf8_lossy(&executable)
            ),
        }
    }
    println!("{:?}", l.collector.losses()?);
    l.detach_in_background();
    Ok(())
}
