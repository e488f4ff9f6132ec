package embedded

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestServerRunsAsAnOrdinaryUser(t *testing.T) {
	lay := layout(t.TempDir())
	t.Setenv("SUDO_UID", "")
	t.Setenv("SUDO_GID", "")
	self := runUser{uid: uint32(os.Geteuid()), gid: uint32(os.Getegid())}
	user, err := chooseUser(lay)
	require.NoError(t, err)
	if self.uid != 0 {
		assert.Equal(t, self, user)
		return
	}
	assert.True(t, user.drop)
	assert.NotZero(t, user.uid)
	assert.Equal(t, `user "nobody"`, user.String())

	t.Setenv("SUDO_UID", "1234")
	t.Setenv("SUDO_GID", "1235")
	user, err = chooseUser(lay)
	require.NoError(t, err)
	assert.Equal(t, runUser{uid: 1234, gid: 1235, drop: true}, user)

	// Once there is a cluster, its owner counts.
	require.NoError(t, os.Mkdir(lay.cluster(), 0o700))
	_, err = chooseUser(lay)
	require.ErrorContains(t, err, "belongs to root")
	require.NoError(t, os.Chown(lay.cluster(), 4321, 4322))
	user, err = chooseUser(lay)
	require.NoError(t, err)
	assert.Equal(t, runUser{uid: 4321, gid: 4322, drop: true}, user)
}

func TestOrdinaryUserIsRefusedTheClusterOfAnother(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may run the server as anybody")
	}
	lay := layout(t.TempDir())
	require.NoError(t, os.Symlink("/", lay.cluster()), "a directory of root's")
	_, err := chooseUser(lay)
	require.ErrorContains(t, err, "belongs to")
}

// Not parallel: the umask is the process's.
func TestDataDirectoryOfRootIsOpenWhateverTheUmask(t *testing.T) {
	base := t.TempDir()
	old := syscall.Umask(0o077)
	err := makeOpenDir(filepath.Join(base, "a", "b"))
	syscall.Umask(old)
	require.NoError(t, err)
	for _, dir := range []string{"a", "a/b"} {
		info, err := os.Stat(filepath.Join(base, dir))
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o755), info.Mode().Perm())
	}
	require.NoError(t, makeOpenDir(filepath.Join(base, "a", "b")), "making it twice is fine")
	require.NoError(t, os.WriteFile(filepath.Join(base, "file"), nil, 0o600))
	require.Error(t, makeOpenDir(filepath.Join(base, "file", "c")))
}

func TestUserMayEnter(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	info, err := os.Stat(dir)
	require.NoError(t, err)
	uid, gid := ownerOf(info)
	for mode, who := range map[os.FileMode][3]bool{ // owner, group, others
		0o700: {true, false, false},
		0o710: {true, true, false},
		0o701: {true, false, true},
		0o711: {true, true, true},
		0o744: {true, false, false},
	} {
		require.NoError(t, os.Chmod(dir, mode))
		info, err := os.Stat(dir)
		require.NoError(t, err)
		assert.Equal(t, who, [3]bool{
			runUser{uid: uid, gid: gid + 1}.mayEnter(info),
			runUser{uid: uid + 1, gid: gid}.mayEnter(info),
			runUser{uid: uid + 1, gid: gid + 1}.mayEnter(info),
		}, "%o", mode)
	}
}
