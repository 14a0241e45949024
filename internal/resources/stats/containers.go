package stats

import (
	"context"
	"time"

	"github.com/moby/sys/mountinfo"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"keelson/internal/host/cgroup"
	"keelson/internal/host/machine"
)

// The cgroup metrics of /metrics/cadvisor. Dashboards depend on them.
var (
	cLoad  = gauge("container_cpu_load_average_10s", "Value of container cpu load average over the last 10 seconds.")
	cLoadD = gauge("container_cpu_load_d_average_10s",
		"Value of container cpu load.d average over the last 10 seconds.")
	cTasks     = gauge("container_tasks_state", "Number of tasks in given state")
	cHealth    = gauge("container_health_state", "The result of the container's health check")
	cCPU       = counter("container_cpu_usage_seconds_total", "Cumulative cpu time consumed in seconds.")
	cUser      = counter("container_cpu_user_seconds_total", "Cumulative user cpu time consumed in seconds.")
	cSystem    = counter("container_cpu_system_seconds_total", "Cumulative system cpu time consumed in seconds.")
	cPeriods   = counter("container_cpu_cfs_periods_total", "Number of elapsed enforcement period intervals.")
	cThrottled = counter("container_cpu_cfs_throttled_periods_total", "Number of throttled period intervals.")
	cThrottle  = counter("container_cpu_cfs_throttled_seconds_total",
		"Total time duration the container has been throttled.")
	cBursts   = counter("container_cpu_cfs_burst_periods_total", "Number of periods when burst occurs.")
	cBurst    = counter("container_cpu_cfs_burst_seconds_total", "Total time duration the container has been bursted.")
	cCache    = gauge("container_memory_cache", "Number of bytes of page cache memory.")
	cFail     = counter("container_memory_failcnt", "Number of memory usage hits limits")
	cFaults   = counter("container_memory_failures_total", "Cumulative count of memory allocation failures.")
	cKernel   = gauge("container_memory_kernel_usage", "Size of kernel memory allocated in bytes.")
	cMapped   = gauge("container_memory_mapped_file", "Size of memory mapped files in bytes.")
	cPeak     = gauge("container_memory_max_usage_bytes", "Maximum memory usage recorded in bytes")
	cRSS      = gauge("container_memory_rss", "Size of RSS in bytes.")
	cSwap     = gauge("container_memory_swap", "Container swap usage in bytes.")
	cActive   = gauge("container_memory_total_active_file_bytes", "Current total active file in bytes.")
	cInactive = gauge("container_memory_total_inactive_file_bytes", "Current total inactive file in bytes.")
	cUsage    = gauge("container_memory_usage_bytes",
		"Current memory usage in bytes, including all memory regardless of when it was accessed")
	cWorking    = gauge("container_memory_working_set_bytes", "Current working set in bytes.")
	cOOM        = counter("container_oom_events_total", "Count of out of memory events observed for the container")
	cProcesses  = gauge("container_processes", "Number of processes running inside the container.")
	cFiles      = gauge("container_file_descriptors", "Number of open file descriptors for the container.")
	cSockets    = gauge("container_sockets", "Number of open sockets for the container.")
	cThreads    = gauge("container_threads", "Number of threads running inside the container")
	cThreadsMax = gauge("container_threads_max",
		"Maximum number of threads allowed inside the container, infinity if value is zero")
	cUlimits = gauge("container_ulimits_soft",
		"Soft ulimit values for the container root process. Unlimited if -1, except priority and nice")
	cSeen       = gauge("container_last_seen", "Last time a container was seen by the exporter")
	cStart      = gauge("container_start_time_seconds", "Start time of the container since unix epoch in seconds.")
	cPeriod     = gauge("container_spec_cpu_period", "CPU period of the container.")
	cQuota      = gauge("container_spec_cpu_quota", "CPU quota of the container.")
	cShares     = gauge("container_spec_cpu_shares", "CPU share of the container.")
	cLimit      = gauge("container_spec_memory_limit_bytes", "Memory limit for the container.")
	cReserve    = gauge("container_spec_memory_reservation_limit_bytes", "Memory reservation limit for the container.")
	cSwapLimit  = gauge("container_spec_memory_swap_limit_bytes", "Memory swap limit for the container.")
	cReads      = counter("container_fs_reads_total", "Cumulative count of reads completed")
	cWrites     = counter("container_fs_writes_total", "Cumulative count of writes completed")
	cReadBytes  = counter("container_fs_reads_bytes_total", "Cumulative count of bytes read")
	cWriteBytes = counter("container_fs_writes_bytes_total", "Cumulative count of bytes written")
	cBlkio      = counter("container_blkio_device_usage_total", "Blkio Device bytes usage")
	cScrape     = gauge("container_scrape_error",
		"1 if there was an error while getting container metrics, 0 otherwise")

	cRxBytes  = counter("container_network_receive_bytes_total", "Cumulative count of bytes received")
	cRxErrors = counter("container_network_receive_errors_total",
		"Cumulative count of errors encountered while receiving")
	cRxDropped = counter("container_network_receive_packets_dropped_total",
		"Cumulative count of packets dropped while receiving")
	cRxPackets = counter("container_network_receive_packets_total", "Cumulative count of packets received")
	cTxBytes   = counter("container_network_transmit_bytes_total", "Cumulative count of bytes transmitted")
	cTxErrors  = counter("container_network_transmit_errors_total",
		"Cumulative count of errors encountered while transmitting")
	cTxDropped = counter("container_network_transmit_packets_dropped_total",
		"Cumulative count of packets dropped while transmitting")
	cTxPackets = counter("container_network_transmit_packets_total", "Cumulative count of packets transmitted")

	cPressure = []struct {
		of            func(*group) *cgroup.Pressure
		waits, stalls metric
	}{
		{func(g *group) *cgroup.Pressure { return g.use.CPU.Pressure },
			counter("container_pressure_cpu_waiting_seconds_total",
				"Total time duration tasks in the container have waited due to CPU congestion."),
			counter("container_pressure_cpu_stalled_seconds_total",
				"Total time duration no tasks in the container could make progress due to CPU congestion.")},
		{func(g *group) *cgroup.Pressure { return g.use.Memory.Pressure },
			counter("container_pressure_memory_waiting_seconds_total",
				"Total time duration tasks in the container have waited due to memory congestion."),
			counter("container_pressure_memory_stalled_seconds_total",
				"Total time duration no tasks in the container could make progress due to memory congestion.")},
		{func(g *group) *cgroup.Pressure { return g.io },
			counter("container_pressure_io_waiting_seconds_total",
				"Total time duration tasks in the container have waited due to IO congestion."),
			counter("container_pressure_io_stalled_seconds_total",
				"Total time duration no tasks in the container could make progress due to IO congestion.")},
	}
)

// The states of container_tasks_state. The values are always 0, as with upstream, which does not read the load of
// cgroups either.
var taskStates = []string{"iowaiting", "running", "sleeping", "stopped", "uninterruptible"}

// Containers gathers the metrics of cgroups and the machine. With the gate PodAndContainerStatsFromCRI the metrics of
// the runtime replace those of the cgroups.
func (c *Collector) Containers() prometheus.Gatherer {
	return gatherer(func() []*dto.MetricFamily {
		ctx := context.Background()
		e := &exposer{c: c, f: newFamilies(), now: time.Now()}
		var failed error
		if c.cfg.FromRuntime {
			failed = e.runtimeMetrics(ctx)
			c.logError("metrics of the runtime", failed)
		} else {
			failed = e.groups(ctx)
		}
		e.machine()
		broken := 0.0
		if failed != nil {
			broken = 1
		}
		e.f.add(cScrape, nil, broken, time.Time{})
		return e.f.sorted()
	})
}

// groups adds the metrics of the cgroups. It returns the first failure.
func (e *exposer) groups(ctx context.Context) error {
	c := e.c
	r := c.read(ctx, cgroup.Full)
	e.limit = r.memory.Total
	e.group(&r.node, identity{}, time.Time{})
	e.network(r.net, r.node.use.At, identity{id: "/"}.labels())
	e.filesystems(identity{id: "/"}.labels())
	for i := range r.parents {
		e.group(&r.parents[i], identity{}, time.Time{})
	}
	for i := range r.system {
		if r.system[i].name != systemPods { // which is among the parents already
			e.group(&r.system[i].group, identity{}, time.Time{})
		}
	}
	if !c.fromRuntime() {
		var sandboxes []string
		for i := range r.pods {
			if s := r.pods[i].sandbox; s != nil {
				sandboxes = append(sandboxes, s.ID)
			}
		}
		images, err := c.sandboxes.learn(ctx, c.cfg.Runtime, sandboxes)
		c.logError("images of sandboxes", err)
		for i := range r.pods {
			e.pod(&r.pods[i], images)
		}
	}
	return r.failed
}

// identity is the source of the labels of a cgroup's series.
type identity struct{ id, name, image, container, pod, namespace string }

func (i identity) labels() labels {
	return makeLabels(
		"container", i.container,
		"id", i.id,
		"image", i.image,
		"name", i.name,
		"namespace", i.namespace,
		"pod", i.pod,
	)
}

// exposer collects the series of one scrape.
type exposer struct {
	c       *Collector
	f       *families
	now     time.Time
	limit   uint64 // memory of the machine
	devices map[[2]uint64]string
}

func (e *exposer) pod(p *podReading, images map[string]string) {
	id := identity{pod: p.Have.Name, namespace: p.Have.Namespace}
	e.group(&p.group, id, p.started)
	if p.sandbox != nil {
		// A sandbox is named by its ID and has no container name.
		id := id
		id.name, id.image = p.sandbox.ID, images[p.sandbox.ID]
		e.group(&p.sandbox.group, id, p.sandbox.StartedAt)
		id.id = p.sandbox.path
		e.network(p.net, p.netAt, id.labels())
	}
	for i := range p.containers {
		cr := &p.containers[i]
		id := id
		id.name, id.image, id.container = cr.ID, cr.Image, cr.Name
		e.group(&cr.group, id, cr.StartedAt)
	}
}

// group adds the series of a cgroup. started is its start time in the runtime, or zero.
func (e *exposer) group(g *group, id identity, started time.Time) {
	id.id = g.path
	l, f, at, use := id.labels(), e.f, g.use.At, &g.use
	cpu, m := &use.CPU, &use.Memory

	f.add(cLoad, l, 0, at)
	f.add(cLoadD, l, 0, at)
	for _, s := range taskStates {
		f.add(cTasks, l.with("state", s), 0, at)
	}
	f.add(cHealth, l, -1, at) // unknown
	f.add(cCPU, l.with("cpu", "total"), cpu.Total.Seconds(), at)
	f.add(cUser, l, cpu.User.Seconds(), at)
	f.add(cSystem, l, cpu.System.Seconds(), at)
	if cpu.Quota != 0 {
		f.add(cPeriods, l, float64(cpu.Periods), at)
		f.add(cThrottled, l, float64(cpu.Throttled), at)
		f.add(cThrottle, l, cpu.ThrottledTime.Seconds(), at)
		f.add(cBursts, l, float64(cpu.Bursts), at)
		f.add(cBurst, l, cpu.BurstDuration.Seconds(), at)
		f.add(cQuota, l, float64(cpu.Quota), time.Time{})
	}
	f.add(cCache, l, float64(m.Cache), at)
	f.add(cFail, l, float64(m.FailHits), at)
	for kind, n := range map[string][2]uint64{
		"pgfault":    {m.OwnFaults, m.Faults},
		"pgmajfault": {m.OwnMajorFaults, m.MajorFaults},
	} {
		f.add(cFaults, l.with("failure_type", kind, "scope", "container"), float64(n[0]), at)
		f.add(cFaults, l.with("failure_type", kind, "scope", "hierarchy"), float64(n[1]), at)
	}
	f.add(cKernel, l, float64(m.Kernel), at)
	f.add(cMapped, l, float64(m.Mapped), at)
	f.add(cPeak, l, float64(m.Peak), at)
	f.add(cRSS, l, float64(m.RSS), at)
	f.add(cSwap, l, float64(m.Swap), at)
	f.add(cActive, l, float64(m.ActiveFile), at)
	f.add(cInactive, l, float64(m.InactiveFile), at)
	f.add(cUsage, l, float64(m.Usage), at)
	f.add(cWorking, l, float64(m.WorkingSet), at)
	f.add(cOOM, l, float64(m.OOMKills), at)
	e.processes(use, l, e.firstProcess(g, id))
	f.add(cThreads, l, float64(use.Threads), at)
	f.add(cThreadsMax, l, float64(use.MaxThreads), at)
	f.add(cSeen, l, float64(e.now.Unix()), e.now)
	f.add(cStart, l, float64(e.start(g, started).Unix()), time.Time{})
	f.add(cPeriod, l, float64(cpu.Period), time.Time{})
	f.add(cShares, l, float64(cpu.Shares), time.Time{})
	limit := m.Limit
	if g.path == "/" {
		limit = e.limit
	}
	f.add(cLimit, l, float64(limit), time.Time{})
	f.add(cReserve, l, float64(m.SoftLimit), time.Time{})
	f.add(cSwapLimit, l, float64(m.SwapAndMemoryLimit), time.Time{})
	for _, p := range cPressure {
		if of := p.of(g); of != nil {
			f.add(p.waits, l, of.Some.Total.Seconds(), at)
			f.add(p.stalls, l, of.Full.Total.Seconds(), at)
		}
	}
	if g.path != "/" { // the disks of the node have metrics of their own
		for _, d := range use.Disks {
			e.disk(d, l, at)
		}
	}
}

// start returns when the kernel created a cgroup, or else when the runtime started the container or sandbox. A creation
// time before the boot of the machine, from a clock that was not set yet, is replaced by the boot time.
func (e *exposer) start(g *group, started time.Time) time.Time {
	made := g.use.Created
	if boot := e.c.boot.Truncate(time.Minute); made.Before(boot) {
		made = boot
	}
	if !started.IsZero() && made.Sub(started) > maxCreateDelay {
		return started
	}
	return made
}

// firstProcess returns the process whose limits are shown for the cgroup: the first process of a container or sandbox,
// process 1 for the root, and 0 otherwise.
func (e *exposer) firstProcess(g *group, id identity) int {
	switch {
	case g.path == "/":
		return 1
	case id.name != "" && len(g.use.Processes) > 0:
		return g.use.Processes[0]
	}
	return 0
}

// processes adds the number of processes of the cgroup itself, their open files and sockets, and the limit on open
// files of the process first.
func (e *exposer) processes(use *cgroup.Usage, l labels, first int) {
	var files, sockets uint64
	for _, pid := range use.Processes {
		n, s := machine.OpenFiles(pid)
		files, sockets = files+n, sockets+s
	}
	at := use.At
	e.f.add(cProcesses, l, float64(len(use.Processes)), at)
	e.f.add(cFiles, l, float64(files), at)
	e.f.add(cSockets, l, float64(sockets), at)
	if first != 0 {
		if n, ok := machine.FileLimit(first); ok {
			e.f.add(cUlimits, l.with("ulimit", "max_open_files"), float64(n), at)
		}
	}
}

func (e *exposer) disk(d cgroup.DiskUsage, l labels, at time.Time) {
	key := [2]uint64{d.Major, d.Minor}
	name, known := e.devices[key]
	if !known {
		name = machine.DeviceName(e.c.cfg.Host, d.Major, d.Minor)
		if e.devices == nil {
			e.devices = map[[2]uint64]string{}
		}
		e.devices[key] = name
	}
	on := l.with("device", name)
	e.f.add(cReads, on, float64(d.ReadOps), at)
	e.f.add(cWrites, on, float64(d.WriteOps), at)
	e.f.add(cReadBytes, on, float64(d.ReadBytes), at)
	e.f.add(cWriteBytes, on, float64(d.WriteBytes), at)
	for op, n := range map[string]uint64{"Read": d.ReadBytes, "Write": d.WriteBytes} {
		e.f.add(cBlkio, l.with("device", name, "major", number(d.Major), "minor", number(d.Minor), "operation", op),
			float64(n), at)
	}
}

func (e *exposer) network(net []machine.Traffic, at time.Time, l labels) {
	for _, t := range net {
		on := l.with("interface", t.Name)
		for _, s := range []struct {
			m metric
			n uint64
		}{
			{cRxBytes, t.RxBytes}, {cRxErrors, t.RxErrors}, {cRxDropped, t.RxDropped}, {cRxPackets, t.RxPackets},
			{cTxBytes, t.TxBytes}, {cTxErrors, t.TxErrors}, {cTxDropped, t.TxDropped}, {cTxPackets, t.TxPackets},
		} {
			e.f.add(s.m, on, float64(s.n), at)
		}
	}
}

// The file system metrics of the node.
var (
	fsLimit = gauge("container_fs_limit_bytes",
		"Number of bytes that can be consumed by the container on this filesystem.")
	fsUsage = gauge("container_fs_usage_bytes",
		"Number of bytes that are consumed by the container on this filesystem.")
	fsInodes   = gauge("container_fs_inodes_total", "Number of Inodes")
	fsFree     = gauge("container_fs_inodes_free", "Number of available Inodes")
	fsCounters = []struct {
		m  metric
		of func(machine.Disk) float64
	}{
		{counter("container_fs_reads_total", "Cumulative count of reads completed"),
			func(d machine.Disk) float64 { return float64(d.Reads) }},
		{counter("container_fs_reads_merged_total", "Cumulative count of reads merged"),
			func(d machine.Disk) float64 { return float64(d.ReadsMerged) }},
		{counter("container_fs_sector_reads_total", "Cumulative count of sector reads completed"),
			func(d machine.Disk) float64 { return float64(d.SectorsRead) }},
		{counter("container_fs_read_seconds_total", "Cumulative count of seconds spent reading"),
			func(d machine.Disk) float64 { return d.ReadTime.Seconds() }},
		{counter("container_fs_writes_total", "Cumulative count of writes completed"),
			func(d machine.Disk) float64 { return float64(d.Writes) }},
		{counter("container_fs_writes_merged_total", "Cumulative count of writes merged"),
			func(d machine.Disk) float64 { return float64(d.WritesMerged) }},
		{counter("container_fs_sector_writes_total", "Cumulative count of sector writes completed"),
			func(d machine.Disk) float64 { return float64(d.SectorsWritten) }},
		{counter("container_fs_write_seconds_total", "Cumulative count of seconds spent writing"),
			func(d machine.Disk) float64 { return d.WriteTime.Seconds() }},
		{gauge("container_fs_io_current", "Number of I/Os currently in progress"),
			func(d machine.Disk) float64 { return float64(d.InProgress) }},
		{counter("container_fs_io_time_seconds_total", "Cumulative count of seconds spent doing I/Os"),
			func(d machine.Disk) float64 { return d.BusyTime.Seconds() }},
		{counter("container_fs_io_time_weighted_seconds_total", "Cumulative weighted I/O time in seconds"),
			func(d machine.Disk) float64 { return d.WeightedTime.Seconds() }},
	}
)

func (e *exposer) filesystems(l labels) {
	mounts, err := mountinfo.GetMounts(ofNode(e.c.cfg.RootDir))
	if err != nil {
		e.c.logError("mounts", err)
		return
	}
	disks, err := machine.ReadDisks(e.c.cfg.Host)
	e.c.logError("disks", err)
	for _, fs := range nodeFilesystems(mounts) {
		st, err := machine.ReadFilesystem(fs.mountpoint)
		if err != nil {
			continue // unmounted in the meantime
		}
		on := l.with("device", fs.device)
		e.f.add(fsLimit, on, float64(st.Capacity), e.now)
		e.f.add(fsUsage, on, float64(st.Capacity-min(st.Free, st.Capacity)), e.now)
		e.f.add(fsInodes, on, float64(st.Inodes), e.now)
		e.f.add(fsFree, on, float64(st.InodesFree), e.now)
		disk := fs.disk(disks)
		for _, s := range fsCounters {
			e.f.add(s.m, on, s.of(disk), e.now)
		}
	}
}

// The metrics of the machine.
var (
	mBooks   = gauge("machine_cpu_books", "Number of CPU books.")
	mCPUs    = gauge("machine_cpu_cores", "Number of logical CPU cores.")
	mDrawers = gauge("machine_cpu_drawers", "Number of CPU drawers.")
	mCores   = gauge("machine_cpu_physical_cores", "Number of physical CPU cores.")
	mSockets = gauge("machine_cpu_sockets", "Number of CPU sockets.")
	mMemory  = gauge("machine_memory_bytes", "Amount of memory installed on the machine.")
	mSwap    = gauge("machine_swap_bytes", "Amount of swap memory available on the machine.")
	mScrape  = gauge("machine_scrape_error", "1 if there was an error while getting machine metrics, 0 otherwise.")
	mVersion = gauge("cadvisor_version_info",
		"A metric with a constant '1' value labeled by kernel version, OS version, docker version, cadvisor version & "+
			"cadvisor revision.")
)

func (e *exposer) machine() {
	m := e.c.cfg.Machine
	l := makeLabels("boot_id", m.BootID, "machine_id", m.MachineID, "system_uuid", m.SystemUUID)
	t := machine.ReadTopology(e.c.cfg.Host)
	for _, s := range []struct {
		m metric
		n uint64
	}{
		{mBooks, uint64(t.Books)},
		{mCPUs, uint64(m.CPUs)},
		{mDrawers, uint64(t.Drawers)},
		{mCores, uint64(t.Cores)},
		{mSockets, uint64(t.Sockets)},
		{mMemory, m.Memory},
		{mSwap, m.Swap},
	} {
		e.f.add(s.m, l, float64(s.n), time.Time{})
	}
	e.f.add(mScrape, nil, 0, time.Time{})
	e.f.add(mVersion, makeLabels(
		"cadvisorRevision", "",
		"cadvisorVersion", "",
		"dockerVersion", "",
		"kernelVersion", m.Kernel,
		"osVersion", m.OSImage,
	), 1, time.Time{})
}
