package uml

// What this machine and the guest share.
const (
	folderPrefix = "keelson-guest-" // of a run's folder, in the temporary folder
	folderEnv    = "KEELSON_GUEST"  // names that folder to the guest's first process
	jobFile      = "job.json"
	statusFile   = "status"
	scratch      = "/g" // the guest's temporary folder; short, for containerd's sockets
)

// job describes the program that the guest runs.
type job struct {
	Program string
	Args    []string
	Dir     string
	Env     []string
	Share   []string // folders of this machine that can be written to
	Tree    string   // laid over the root
	Modules string
}

// Env returns the basic environment of programs in a guest.
func Env() []string {
	return []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "TMPDIR=" + scratch,
		"KEELSON_PART_RUNC=" + scratch + "/oci", // which is crun
	}
}
