//! The error numbers that go over the wire (Linux values, sent negated).

/// A Linux errno. Replies carry it negated; 0 is success and is not an `Errno`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident = $value:literal $text:literal),+ $(,)?) => {
        impl Errno {
            $( pub const $name: Self = Self($value); )+

            /// The symbolic name, when it is one that we use.
            pub fn name(self) -> Option<&'static str> {
                match self.0 { $( $value => Some(stringify!($name)), )+ _ => None }
            }

            /// The text that strerror gives.
            pub fn text(self) -> &'static str {
                match self.0 { $( $value => $text, )+ _ => "Unknown error" }
            }
        }
    };
}
errnos! {
    EPERM = 1 "Operation not permitted",
    ENOENT = 2 "No such file or directory",
    EINTR = 4 "Interrupted system call",
    EIO = 5 "Input/output error",
    ENXIO = 6 "No such device or address",
    E2BIG = 7 "Argument list too long",
    ENOEXEC = 8 "Exec format error",
    EBADF = 9 "Bad file descriptor",
    EAGAIN = 11 "Resource temporarily unavailable",
    ENOMEM = 12 "Cannot allocate memory",
    EACCES = 13 "Permission denied",
    EFAULT = 14 "Bad address",
    EBUSY = 16 "Device or resource busy",
    EEXIST = 17 "File exists",
    EXDEV = 18 "Invalid cross-device link",
    ENODEV = 19 "No such device",
    ENOTDIR = 20 "Not a directory",
    EISDIR = 21 "Is a directory",
    EINVAL = 22 "Invalid argument",
    EFBIG = 27 "File too large",
    ENOSPC = 28 "No space left on device",
    EROFS = 30 "Read-only file system",
    EMLINK = 31 "Too many links",
    EDOM = 33 "Numerical argument out of domain",
    ERANGE = 34 "Numerical result out of range",
    EDEADLK = 35 "Resource deadlock avoided",
    ENAMETOOLONG = 36 "File name too long",
    ENOLCK = 37 "No locks available",
    ENOSYS = 38 "Function not implemented",
    ENOTEMPTY = 39 "Directory not empty",
    ELOOP = 40 "Too many levels of symbolic links",
    ENOMSG = 42 "No message of desired type",
    ENODATA = 61 "No data available",
    ENOLINK = 67 "Link has been severed",
    EBADMSG = 74 "Bad message",
    EOVERFLOW = 75 "Value too large for defined data type",
    ERESTART = 85 "Interrupted system call should be restarted",
    EOPNOTSUPP = 95 "Operation not supported",
    ENOTCONN = 107 "Transport endpoint is not connected",
    ESHUTDOWN = 108 "Cannot send after transport endpoint shutdown",
    ETIMEDOUT = 110 "Connection timed out",
    EALREADY = 114 "Operation already in progress",
    ESTALE = 116 "Stale file handle",
    EDQUOT = 122 "Disk quota exceeded",
    ECANCELED = 125 "Operation canceled",
}

impl Errno {
    /// The negated value, as replies carry it.
    #[allow(clippy::should_implement_trait)] // `-Errno` would read as another errno; this is a plain number
    pub fn neg(self) -> i32 {
        -self.0
    }
}

impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "({}) {}", self.0, self.text())
    }
}
impl std::fmt::Debug for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "Errno({})", self.0),
        }
    }
}
impl std::error::Error for Errno {}
