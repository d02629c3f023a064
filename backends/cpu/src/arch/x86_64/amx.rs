//! Matrix tiles (AMX): whether they can be used.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};
use std::sync::OnceLock;

/// Whether the processor has BF16 tiles and the system lets this process use them.
pub(crate) fn is_available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| processor_has_tiles() && system_permits())
}

fn processor_has_tiles() -> bool {
    const OSXSAVE: u32 = 1 << 27;
    const AMX_BF16: u32 = 1 << 22;
    const AMX_TILE: u32 = 1 << 24;
    // Tile configuration and tile data, state components 17 and 18.
    const XTILE: u64 = 3 << 17;
    if __cpuid(0).eax < 7 || __cpuid(1).ecx & OSXSAVE == 0 {
        return false;
    }
    if __cpuid_count(7, 0).edx & (AMX_BF16 | AMX_TILE) != AMX_BF16 | AMX_TILE {
        return false;
    }
    // SAFETY: OSXSAVE says that the instruction exists.
    unsafe { xcr0() & XTILE == XTILE }
}

/// # Safety
/// The processor has `xgetbv`.
#[target_feature(enable = "xsave")]
unsafe fn xcr0() -> u64 {
    // SAFETY: as the caller promises.
    unsafe { _xgetbv(0) }
}

/// Asks Linux for the tile registers of this process: `arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA)`.
#[cfg(target_os = "linux")]
fn system_permits() -> bool {
    const SYS_ARCH_PRCTL: i64 = 158;
    const ARCH_REQ_XCOMP_PERM: i64 = 0x1023;
    const XTILEDATA: i64 = 18;
    let result: i64;
    // SAFETY: this system call takes two integers, touches no memory of ours, and clobbers what is
    // listed.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") SYS_ARCH_PRCTL => result,
            in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") XTILEDATA,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result == 0
}

/// Other systems give no such promise that we know of.
#[cfg(not(target_os = "linux"))]
fn system_permits() -> bool {
    false
}

/// Bytes of a tile: 16 rows of 64 bytes.
pub(crate) const TILE_BYTES: usize = 1024;

/// All eight tiles as 16 rows of 64 bytes.
#[repr(C, align(64))]
struct Config {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

static CONFIG: Config = {
    let mut config = Config {
        palette: 1,
        start_row: 0,
        reserved: [0; 14],
        row_bytes: [0; 16],
        rows: [0; 16],
    };
    let mut i = 0;
    while i < 8 {
        config.row_bytes[i] = 64;
        config.rows[i] = 16;
        i += 1;
    }
    config
};

/// Sets up the tiles of this thread.
///
/// # Safety
/// [`is_available`] has returned true.
pub(crate) unsafe fn configure() {
    // SAFETY: tiles may be used, and the configuration is 64 readable bytes that the processor takes.
    unsafe {
        asm!("ldtilecfg [{}]", in(reg) &raw const CONFIG, options(nostack, preserves_flags));
    }
}

/// Gives the tiles of this thread up, so that the system need not save them.
///
/// # Safety
/// [`is_available`] has returned true.
pub(crate) unsafe fn release() {
    // SAFETY: tiles may be used.
    unsafe { asm!("tilerelease", options(nostack, nomem, preserves_flags)) }
}

/// `c = a b`, or `c += a b` with `add`, for two by two tiles: `a` holds `[k_tiles]` tiles of 16 rows, the next 16 rows
/// `a_stride` bytes on; `b` holds `[k_tiles]` tiles of 16 columns, the next 16 columns `b_stride` bytes
/// on; `c` holds 16 rows of 16 floats, the next 16 rows right after, the next 16 columns `c_stride` bytes
/// on. `a` is kept in the first-level cache for the next call, `b` is not.
///
/// # Safety
/// The tiles are [configured](configure), `k_tiles > 0`, and all of that is readable; `c` is writable.
#[inline]
pub(crate) unsafe fn multiply_two(
    a: *const u8,
    a_stride: usize,
    b: *const u8,
    b_stride: usize,
    c: *mut f32,
    c_stride: usize,
    k_tiles: usize,
    add: bool,
) {
    let c = c.cast::<u8>();
    // SAFETY: as the caller promises; every tile register that is written is declared.
    unsafe {
        asm!(
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            "test {add}, {add}",
            "jz 2f",
            "tileloadd tmm0, [{c00} + {s}]",
            "tileloadd tmm1, [{c01} + {s}]",
            "tileloadd tmm2, [{c00} + {s} + 1024]",
            "tileloadd tmm3, [{c01} + {s} + 1024]",
            "2:",
            "tileloadd tmm4, [{a0} + {s}]",
            "tileloaddt1 tmm6, [{b0} + {s}]",
            "tileloaddt1 tmm7, [{b1} + {s}]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm5, [{a1} + {s}]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "add {a0}, 1024",
            "add {a1}, 1024",
            "add {b0}, 1024",
            "add {b1}, 1024",
            "dec {n}",
            "jnz 2b",
            "tilestored [{c00} + {s}], tmm0",
            "tilestored [{c01} + {s}], tmm1",
            "tilestored [{c00} + {s} + 1024], tmm2",
            "tilestored [{c01} + {s} + 1024], tmm3",
            a0 = inout(reg) a => _,
            a1 = inout(reg) a.wrapping_add(a_stride) => _,
            b0 = inout(reg) b => _,
            b1 = inout(reg) b.wrapping_add(b_stride) => _,
            c00 = in(reg) c,
            c01 = in(reg) c.wrapping_add(c_stride),
            add = in(reg) u64::from(add),
            n = inout(reg) k_tiles => _,
            s = in(reg) 64usize,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
    }
}

/// As [`multiply_two`] for one tile of 16 rows.
///
/// # Safety
/// As for [`multiply_two`].
#[inline]
pub(crate) unsafe fn multiply_one(
    a: *const u8,
    b: *const u8,
    b_stride: usize,
    c: *mut f32,
    c_stride: usize,
    k_tiles: usize,
    add: bool,
) {
    let c = c.cast::<u8>();
    // SAFETY: as the caller promises; every tile register that is written is declared.
    unsafe {
        asm!(
            "tilezero tmm0",
            "tilezero tmm1",
            "test {add}, {add}",
            "jz 2f",
            "tileloadd tmm0, [{c0} + {s}]",
            "tileloadd tmm1, [{c1} + {s}]",
            "2:",
            "tileloadd tmm4, [{a} + {s}]",
            "tileloaddt1 tmm6, [{b0} + {s}]",
            "tileloaddt1 tmm7, [{b1} + {s}]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "add {a}, 1024",
            "add {b0}, 1024",
            "add {b1}, 1024",
            "dec {n}",
            "jnz 2b",
            "tilestored [{c0} + {s}], tmm0",
            "tilestored [{c1} + {s}], tmm1",
            a = inout(reg) a => _,
            b0 = inout(reg) b => _,
            b1 = inout(reg) b.wrapping_add(b_stride) => _,
            c0 = in(reg) c,
            c1 = in(reg) c.wrapping_add(c_stride),
            add = in(reg) u64::from(add),
            n = inout(reg) k_tiles => _,
            s = in(reg) 64usize,
            out("tmm0") _, out("tmm1") _, out("tmm4") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
    }
}
