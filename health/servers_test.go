package health

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The tests against real servers start them, each in a folder of its own. Run by
// root they belong to nobody, because PostgreSQL refuses to be root's.
const nobody = 65534

// program finds a server's program, or ends the test.
func program(t *testing.T, name string, folders ...string) string {
	t.Helper()
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	for _, folder := range folders {
		if found, _ := filepath.Glob(filepath.Join(folder, name)); len(found) > 0 {
			return found[len(found)-1]
		}
	}
	const why = " is not installed; scripts/deps.sh installs it"
	if os.Getenv("POISE_TEST_ALL") != "" {
		t.Fatal(name + why)
	}
	t.Skip(name + why)
	return ""
}

// serverDir makes a folder that the servers may write to.
func serverDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "poise") // short: sockets are in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if os.Geteuid() == 0 {
		if err := os.Chown(dir, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// command is a program that runs in dir as who the servers run as, in a process
// group of its own. It does not outlive the thread that starts it.
func command(dir, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir, "LC_ALL=C", "TZ=UTC")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	return cmd
}

// run runs a program to its end and returns what it wrote.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	out, err := command(dir, name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// server is a running server of the tests.
type server struct {
	cmd     *exec.Cmd
	address string // 127.0.0.1 and its port
	ended   chan struct{}
	out     logText
}

// logText is a server's log as it grows.
type logText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// start runs a server until the test ends; quit is the signal that ends it fast.
func start(t *testing.T, quit syscall.Signal, address, dir, name string, args ...string) *server {
	t.Helper()
	s := &server{cmd: command(dir, name, args...), address: address, ended: make(chan struct{})}
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.out
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends after the server
		started <- s.cmd.Start()
		_ = s.cmd.Wait()
		close(s.ended)
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.stop(quit)
		if t.Failed() {
			t.Logf("%s on %s said:\n%s", filepath.Base(name), address, &s.out)
		}
	})
	return s
}

// stop ends a server, and whatever processes of its are left.
func (s *server) stop(signal syscall.Signal) {
	_ = s.cmd.Process.Signal(signal)
	select {
	case <-s.ended:
	case <-time.After(longTimeout / 4):
		_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
		<-s.ended
	}
}

// awaitUp probes until a server is.
func awaitUp(t *testing.T, s *server, spec Spec) {
	t.Helper()
	p := spec.Prober("tcp", s.address)
	var err error
	for deadline := time.Now().Add(2 * longTimeout); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		select {
		case <-s.ended:
			t.Fatalf("the server ended:\n%s", &s.out)
		default:
		}
		if err = probeOnce(p, longTimeout); err == nil {
			return
		}
	}
	t.Fatalf("the server does not come up: %v", err)
}

// freePort is a port that nobody listens on.
func freePort(t *testing.T) (address, port string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	address = ln.Addr().String()
	_, port, err = net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return address, port
}

// serverCertificate writes a certificate for the name db.test, signed by itself,
// and its key, to cert.pem and key.pem in dir.
func serverCertificate(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "db.test"}, DNSNames: []string{"db.test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	privateDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writeOwned(t, cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	writeOwned(t, key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: privateDER}))
	return cert, key
}

// writeOwned writes a file that belongs to who the servers run as.
func writeOwned(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(path, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
}

// probeUntil probes until ok says so of the outcome.
func probeUntil(t *testing.T, p Prober, ok func(error) bool) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(3 * longTimeout); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if err = probeOnce(p, longTimeout); ok(err) {
			return
		}
	}
	t.Fatalf("still: %v", err)
}

// has returns a condition of probeUntil: a failure with this reason.
func has(r Reason) func(error) bool {
	return func(err error) bool { return err != nil && asFailure(err).Reason == r }
}

func isUp(err error) bool { return err == nil }

// manyProbes probes a hundred times and sees that no descriptor stays open.
func manyProbes(t *testing.T, p Prober) {
	t.Helper()
	before := 0
	for i := range 110 {
		if i == 10 {
			before = openDescriptors(t)
		}
		if err := probeOnce(p, longTimeout); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() bool { return openDescriptors(t) <= before })
}

// cancelled probes with a context that ends while the backend is silent.
func cancelled(t *testing.T, spec Spec) {
	t.Helper()
	s := newScripted(t, "tcp", silent)
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(50*time.Millisecond, cancel)
	begun := time.Now()
	if err := spec.Prober(s.network, s.address).Probe(ctx); err == nil {
		t.Error("no error")
	}
	if took := time.Since(begun); took > longTimeout/2 {
		t.Errorf("took %s to return", took)
	}
}

// silent accepts everything and says nothing.
func silent(conn net.Conn) {
	buf := make([]byte, 4<<10)
	for {
		if _, err := conn.Read(buf); err != nil {
			return
		}
	}
}
