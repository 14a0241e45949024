package need

// listed are the skips that are expected under continuous integration: the test, the reason
// that it passes to Skip, and why the test cannot run there.
var listed = []struct{ test, reason, why string }{
	{
		test:   "TestMetricValuesAreUpstreams",
		reason: "runs by make differ-values only",
		why:    "it takes three minutes and has a make target of its own",
	},
	{
		test:   "TestKernelAcceptsValuesV2",
		reason: "this machine lacks a controller on cgroup v2",
		why:    "the machine has its controllers on cgroup v1; make guest runs the agent on v2 alone",
	},
	{
		test:   "TestFileLabelOnHost",
		reason: "this machine has no SELinux",
		why:    "Debian enables no SELinux; the test has checked that no labels are made",
	},
}
