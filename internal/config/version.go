package config

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"

	apiversion "k8s.io/apimachinery/pkg/version"

	utilversion "k8s.io/apimachinery/pkg/util/version"
)

// versionFlag is --version: alone it prints the version, =raw all of it, and =vX.Y.Z sets
// the version that this agent reports.
type versionFlag struct{ asked, reported string }

func (v *versionFlag) Type() string   { return "version" }
func (v *versionFlag) String() string { return v.asked }

func (v *versionFlag) Set(s string) error {
	if strings.HasPrefix(s, "v") {
		if err := sameRelease(s); err != nil {
			return err
		}
		v.reported = s
		return nil
	}
	if s == "raw" {
		v.asked = s
		return nil
	}
	yes, err := strconv.ParseBool(s)
	if err != nil {
		return err
	}
	v.asked = ""
	if yes {
		v.asked = "true"
	}
	return nil
}

// sameRelease refuses a version of another release than the one built: only the part after
// the patch number may differ.
func sameRelease(s string) error {
	want, err := utilversion.ParseSemantic(s)
	if err != nil {
		return err
	}
	have := utilversion.MustParseSemantic(version)
	if want.Major() != have.Major() || want.Minor() != have.Minor() || want.Patch() != have.Patch() {
		return fmt.Errorf("version %q must match major/minor/patch of %q", s, version)
	}
	return nil
}

// text is the output of --version; "" if the flag is not set.
func (v *versionFlag) text() string {
	reported := version
	if v.reported != "" {
		reported = v.reported
	}
	switch v.asked {
	case "raw":
		return fmt.Sprintf("%#v\n", buildInfo(reported))
	case "true":
		return fmt.Sprintf("Kubernetes %s\n", reported)
	}
	return ""
}

// lastRelease is the minor release before the one built.
func lastRelease() string {
	sem := utilversion.MustParseSemantic(version)
	return fmt.Sprintf("%d.%d", sem.Major(), sem.Minor()-1)
}

// Build returns the build information, with the version that the agent reports.
func (c *Config) Build() apiversion.Info { return buildInfo(c.Version) }

func buildInfo(gitVersion string) apiversion.Info {
	sem := utilversion.MustParseSemantic(gitVersion)
	return apiversion.Info{
		Major:        strconv.FormatUint(uint64(sem.Major()), 10),
		Minor:        strconv.FormatUint(uint64(sem.Minor()), 10),
		GitVersion:   gitVersion,
		GitCommit:    gitCommit,
		GitTreeState: "",
		BuildDate:    buildDate,
		GoVersion:    runtime.Version(),
		Compiler:     runtime.Compiler,
		Platform:     runtime.GOOS + "/" + runtime.GOARCH,
	}
}
