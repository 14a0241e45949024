package suite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"keelson/test/images"
	"keelson/test/parts"
)

// builder makes the suite's images one after the other.
type builder struct {
	parts    *parts.Builder
	checkout string
	work     string
	debian   string // tree of Debian's packages
	shell    string // the busybox of all userlands
}

// Build writes the suite's images as archives into dir and returns them.
func Build(ctx context.Context, b *parts.Builder, dir string) ([]string, error) {
	checkout, err := parts.Checkout()
	if err != nil {
		return nil, err
	}
	debian, err := b.Unpack(ctx, "suite", true, packages...)
	if err != nil {
		return nil, err
	}
	shell, err := b.Busybox(ctx)
	if err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp(dir, "suite-")
	if err != nil {
		return nil, fmt.Errorf("make images of the suite: %w", err)
	}
	defer os.RemoveAll(work)
	s := &builder{parts: b, checkout: checkout, work: work, debian: debian, shell: shell}
	var files []string
	for _, make := range []func(context.Context) (images.Image, error){
		s.busybox, s.nonroot, s.nonewprivs, s.ipcUtils, s.perl, s.nginx, s.dnsTesting, s.agnhost,
	} {
		im, err := make(ctx)
		if err != nil {
			return nil, fmt.Errorf("make image: %w", err)
		}
		file := filepath.Join(dir, fmt.Sprintf("suite-%d.tar", len(files)))
		if err := images.Archive(file, im); err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

func (s *builder) userland(ctx context.Context, name string) *userland {
	return newUserland(ctx, filepath.Join(s.work, name), s.debian, s.shell)
}

func (s *builder) busybox(ctx context.Context) (images.Image, error) {
	u := s.userland(ctx, "busybox")
	return images.Image{
		Names: []string{busybox, busyboxPrev, "docker.io/library/busybox:1.37", "docker.io/library/busybox:latest"},
		Root:  u.root, Config: v1.Config{Cmd: []string{"sh"}},
	}, u.err
}

func (s *builder) nonroot(ctx context.Context) (images.Image, error) {
	u := s.userland(ctx, "nonroot")
	return images.Image{
		Names:  []string{nonroot},
		Root:   u.root,
		Config: v1.Config{Cmd: []string{"sh"}, User: "1234"},
	}, u.err
}

func (s *builder) nonewprivs(ctx context.Context) (images.Image, error) {
	u := s.userland(ctx, "nonewprivs")
	nnp := "usr/local/bin/nnp"
	u.do(func() error { return images.Compile(ctx, s.checkout, "./test/images/nnp", u.path(nnp)) })
	u.mode(nnp, 0o755|os.ModeSetuid)
	return images.Image{Names: []string{nonewprivs}, Root: u.root, Config: v1.Config{Cmd: []string{"nnp"}}}, u.err
}

func (s *builder) ipcUtils(ctx context.Context) (images.Image, error) {
	u := s.userland(ctx, "ipc-utils")
	u.programs(ctx, "ipcs", "ipcmk", "ipcrm", "lsns", "unshare", "nsenter")
	return images.Image{Names: []string{ipcUtils}, Root: u.root, Config: v1.Config{Cmd: []string{"sh"}}}, u.err
}

func (s *builder) perl(ctx context.Context) (images.Image, error) {
	u := s.userland(ctx, "perl")
	u.programs(ctx, "perl")
	found, err := filepath.Glob(filepath.Join(s.debian, "usr/lib/*-linux-gnu*/perl-base"))
	if err != nil || len(found) == 0 {
		return images.Image{}, fmt.Errorf("find perl's modules in %s: none (%v)", s.debian, err)
	}
	rel, err := filepath.Rel(filepath.Join(s.debian, "usr"), found[0])
	if err != nil {
		return images.Image{}, err
	}
	u.tree(rel, filepath.Join("usr", rel))
	return images.Image{Names: []string{perl}, Root: u.root, Config: v1.Config{Cmd: []string{"perl", "-de0"}}}, u.err
}

const nginxConf = `user nginx;
worker_processes 1;
error_log /var/log/nginx/error.log notice;
pid /run/nginx.pid;
events { worker_connections 1024; }
http {
  include /etc/nginx/mime.types;
  default_type application/octet-stream;
  access_log /var/log/nginx/access.log;
  sendfile on;
  include /etc/nginx/conf.d/*.conf;
}
`

func (s *builder) nginx(ctx context.Context) (images.Image, error) {
	u := s.userland(ctx, "nginx")
	u.programs(ctx, "nginx")
	for _, d := range []string{"var/log/nginx", "var/lib/nginx", "var/cache/nginx"} {
		u.folder(d, 0o755)
	}
	u.write("etc/nginx/nginx.conf", nginxConf)
	u.copy("etc/nginx/mime.types", filepath.Join(s.debian, "etc/nginx/mime.types"), 0o644)
	u.write("etc/nginx/conf.d/default.conf", "server { listen 80; server_name localhost; location / { root /usr/share/nginx/html; index index.html index.htm; } }\n")
	u.write("usr/share/nginx/html/index.html", "<!DOCTYPE html><html><head><title>Welcome to nginx!</title></head><body><h1>Welcome to nginx!</h1></body></html>\n")
	u.add("etc/passwd", "nginx:x:101:101:nginx:/var/cache/nginx:/sbin/nologin\n")
	u.add("etc/group", "nginx:x:101:\n")
	u.link("var/log/nginx/access.log", "/dev/stdout")
	u.link("var/log/nginx/error.log", "/dev/stderr")
	u.write("docker-entrypoint.sh", "#!/bin/sh\nexec \"$@\"\n")
	u.mode("docker-entrypoint.sh", 0o755)
	return images.Image{Names: []string{nginx, nginxNew}, Root: u.root, Config: v1.Config{
		Entrypoint: []string{"/docker-entrypoint.sh"}, Cmd: []string{"nginx", "-g", "daemon off;"},
		ExposedPorts: map[string]struct{}{"80/tcp": {}},
	}}, u.err
}

func (s *builder) dnsTesting(ctx context.Context) (images.Image, error) {
	u := s.userland(ctx, "dns-testing")
	u.programs(ctx, "bash", "dig", "nslookup", "host", "nsupdate", "curl", "hostname")
	s.part(ctx, u, "coredns", "coredns")
	return images.Image{Names: []string{dnsTesting}, Root: u.root, Config: v1.Config{Cmd: []string{"bash"}}}, u.err
}

// part copies a part's program into an image.
func (s *builder) part(ctx context.Context, u *userland, part, to string) {
	u.do(func() error {
		from, err := s.parts.Path(ctx, part)
		if err != nil {
			return err
		}
		u.copy(to, from, 0o755)
		return u.err
	})
}

func (s *builder) agnhost(ctx context.Context) (images.Image, error) {
	u := s.userland(ctx, "agnhost")
	u.programs(
		ctx,
		"bash",
		"dig",
		"nslookup",
		"host",
		"curl",
		"nc.openbsd",
		"ss",
		"ip",
		"iperf",
		"ipcs",
		"ipcmk",
		"ipcrm",
	)
	u.replaceLink("bin/nc", "nc.openbsd")
	u.link("usr/local/bin/iperf", "../../bin/iperf")
	s.part(ctx, u, "agnhost", "agnhost")
	s.part(ctx, u, "coredns", "coredns")
	u.link("agnhost-2", "agnhost")
	u.folder("uploads", 0o755)
	u.folder("etc/ssl/certs", 0o755)
	u.do(func() error { return selfSigned(u.path("localhost.crt"), u.path("localhost.key")) })
	u.add("etc/passwd", "user-defined-in-image:x:1000:1000:Linux User,,,:/home/user-defined-in-image:/bin/sh\n")
	u.add("etc/group", "user-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n")
	u.folder("home/user-defined-in-image", 0o755)
	u.own("home/user-defined-in-image", 1000, 1000)
	u.do(func() error { return s.registry(ctx, u.path("var/registry")) })
	ports := map[string]struct{}{}
	for _, p := range []string{"80", "8080", "8081", "9376", "5000"} {
		ports[p+"/tcp"] = struct{}{}
	}
	return images.Image{Names: []string{agnhost, agnhostPrev}, Root: u.root, Config: v1.Config{
		Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}, ExposedPorts: ports,
	}}, u.err
}
