package uml

// What both sides know.
const (
	folderPrefix = "keelson-guest-" // of a run's folder, in the temporary folder
	folderEnv    = "KEELSON_GUEST"  // names that folder to the guest's first process
	jobFile      = "job.json"
	statusFile   = "status"
	scratch      = "/g" // the guest's temporary folder; containerd's sockets want a short name
)

// job is what the guest is to do.
type job struct {
	Program string
	Args    []string
	Dir     string
	Env     []string
	Share   []string // folders of this machine that can be written to
	Tree    string   // laid over the root
	Modules string
}

// Env is the environment of programs in a guest, beside what they are given.
func Env() []string {
	return []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "TMPDIR=" + scratch,
		"KEELSON_PART_RUNC=" + scratch + "/oci", // which is crun
	}
}
