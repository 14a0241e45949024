package config

import (
	"testing"

	"keelson/test/script"
)

func TestMain(m *testing.M) {
	script.Prepare()
	m.Run()
}
