package daemon

import (
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/poise-lb/poise/internal/admin"
	"github.com/poise-lb/poise/internal/config"
	"github.com/poise-lb/poise/internal/control"
	"github.com/poise-lb/poise/internal/spool"
	"github.com/poise-lb/poise/l4/sock"
)

// A change is a configuration of which everything that can fail has been done
// and nothing has taken effect.
type change struct {
	next         *generation
	pools        *control.Change
	socket, http endpoint
	access       io.Writer // where the access log goes; only if moveAccess
	moveAccess   bool
}

// apply makes file the configuration that runs, and returns what changed. On
// error nothing has. Files and names may keep it waiting; nothing else waits for it, and
// what is discovered meanwhile takes effect after it.
func (d *Daemon) apply(file *config.File) (changes []string, err error) {
	d.applying.Lock()
	defer d.applying.Unlock()
	old := d.generation.Load()
	c, err := d.prepare(file)
	if err != nil {
		return nil, hidden(file, err)
	}
	if err := d.commit(c); err != nil {
		d.abort(c)
		return nil, hidden(file, err)
	}
	changes = append(config.Diff(old.file, file), fileChanges(old, c.next)...)
	if n := file.Runtime.Workers; n != d.workers {
		changes = append(changes, fmt.Sprintf("runtime: workers %d -> %s takes a restart", d.workers, file.Told("runtime.workers", strconv.Itoa(n))))
	}
	return changes, nil
}

// prepare does what waits for files and names, which can fail, and undoes it if
// something does.
func (d *Daemon) prepare(file *config.File) (_ *change, err error) {
	old := d.generation.Load()
	c := &change{next: &generation{file: file}, pools: d.control.Plan(file.Pools), socket: d.socket, http: d.http}
	defer func() {
		if err != nil {
			d.abort(c)
		}
	}()
	if err := errors.Join(c.next.planServices(old), c.next.planUpstreams(), c.next.planFiles(), c.next.mayConnect()); err != nil {
		return nil, err
	}
	if err := d.prepareAccess(c, file.Log); err != nil {
		return nil, fmt.Errorf("log.access: %w", err)
	}
	if err := d.prepareAdmin(c, file.Admin); err != nil {
		return nil, err
	}
	c.pools.Discover(d.reloads.ending)
	return c, nil
}

func (d *Daemon) prepareAccess(c *change, log config.Log) error {
	if log.Access == d.accessTarget && log.AccessFormat == d.accessFormat {
		return nil
	}
	c.moveAccess = true
	switch log.Access {
	case "none":
	case "stdout":
		c.access = d.options.Stdout
	default:
		f, err := spool.Open(log.Access)
		if err != nil {
			return err
		}
		c.access = f
	}
	return nil
}

func (d *Daemon) prepareAdmin(c *change, want config.Admin) error {
	if want.Socket != d.socket.addr {
		server, err := admin.ListenSocket(want.Socket, d, d.adminRoom(), d.log)
		if err != nil {
			return err
		}
		c.socket = endpoint{want.Socket, server}
	}
	if want.HTTP != d.http.addr {
		c.http = endpoint{addr: want.HTTP}
		if want.HTTP == "" {
			return nil
		}
		server, err := admin.ListenHTTP(want.HTTP, d, d.metrics, d.adminRoom(), d.log)
		if err != nil {
			return err
		}
		c.http.server = server
	}
	return nil
}

// adminRoom is what clients of one admin endpoint may take up. There are two of them,
// and half of what is kept back stays for checks, names and files.
func (d *Daemon) adminRoom() admin.Room {
	return admin.Room{Places: func() int { return sock.KeptBack() / 4 }, Count: d.data.descriptors.Aside}
}

// abort undoes what prepare has done.
func (d *Daemon) abort(c *change) {
	c.pools.Abort()
	if f, ok := c.access.(*spool.File); ok {
		_ = f.Close() // nothing was written
	}
	if c.socket.server != d.socket.server {
		c.socket.close(d.log)
	}
	if c.http.server != d.http.server {
		c.http.close(d.log)
	}
}

// commit binds what is new, and then lets the change take effect: nothing after that
// can fail. If it cannot bind, nothing has changed. It waits for no file and no name.
func (d *Daemon) commit(c *change) error {
	d.committing.Lock()
	defer d.committing.Unlock()
	if d.phase.Load() == stopping {
		return errStopping
	}
	routing, err := d.data.prepare(c.next.routes(c.pools.Next()))
	if err != nil {
		return err
	}
	d.logging.set(c.next.file.Log)
	retire := c.pools.Commit()
	d.generation.Store(c.next)
	scheduleFor(len(d.data.loops), c.next)
	routing.commit()
	retire()

	if c.moveAccess {
		d.access.Switch(c.access, c.next.file.Log.AccessFormat)
		d.accessTarget, d.accessFormat = c.next.file.Log.Access, c.next.file.Log.AccessFormat
	}
	d.control.Keep(c.next.file.Admin.State)
	d.retire(d.socket, c.socket)
	d.retire(d.http, c.http)
	d.socket, d.http = c.socket, c.http
	if d.http.server != nil {
		d.http.server.AnswerTo(c.next.file.Admin.Hosts)
	}
	return nil
}

// retire closes an admin endpoint that another one has replaced. It does not
// wait: the reload may have come in through it, and its answer has to go out.
func (d *Daemon) retire(old, now endpoint) {
	if old.server != now.server {
		d.background.Go(func() { old.close(d.log) })
	}
}
