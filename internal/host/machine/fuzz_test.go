package machine

import "testing"

// FuzzTables parses arbitrary tables of disks and of network traffic.
func FuzzTables(f *testing.F) {
	f.Add("   8       0 sda 1 2 3 4 5 6 7 8 9 10 11 12\n")
	f.Add("Inter-|   Receive  |  Transmit\n eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n")
	f.Add("8 0 x y\n:\n : :\n")
	f.Fuzz(func(t *testing.T, text string) {
		for name := range parseDisks(text) {
			if len(name) <= len("/dev/") {
				t.Errorf("%q has a disk without a name", text)
			}
		}
		parseTraffic(text)
	})
}
