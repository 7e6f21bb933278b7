//! The allocator: mimalloc, because it gives back what a burst took.
//!
//! `scripts/bench --burst`, on two busy cores that tests shared: MiB at most, and two seconds later.
//!
//! | 16 x 256 MiB at once | glibc 2.36 | jemalloc 5.3 | mimalloc 2.0 |
//! |---|---|---|---|
//! | idle: file, S3 | 9, 11 | 12, 14 | 10, 12 |
//! | PUT to a directory | 55, 26 | 62, 50 | 57, 25 |
//! | GET from it | 60, 44 | 87, 69 | 69, 48 |
//! | PUT to S3 | 206, 150 | 160, 91 | 165, 49 |
//! | GET from S3 | 464, 279 | 390, 251 | 309, 42 |
//!
//! Parts of a bucket's objects are what makes the difference: glibc never gave them back, not even after
//! the small requests that followed (279 to 42 and 30 MiB). What a gigabyte and a small request cost in
//! CPU differed less between allocators than between two runs of one (1.0 to 1.2 cpu-s/GB for a GET from
//! S3, 100 to 110 us for 4 KiB).

use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;
