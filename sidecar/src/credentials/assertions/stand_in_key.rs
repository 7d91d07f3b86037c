//! The RSA key that a container has instead of the real one: drawn from the installation's key and the secret's name alone,
//! so the same after every restart, whatever the real key is. The first primes that come are taken, so it does not depend on
//! how a library looks for them. It has no value outside of the sidecar, so nothing here hides how long it takes.

use crypto_bigint::{Limb, NonZero, Odd, U1024, U2048, Uint};
use crypto_primes::{Flavor, is_prime};
use zeroize::Zeroizing;

use super::super::installation_key::InstallationKey;
use super::super::stand_in;
use super::der;

/// Of each prime.
const BYTES: usize = 128;
/// The public exponent, as of every usual key (RFC 8017 section 3.1); a prime.
const EXPONENT: u64 = 65_537;
/// Candidates after one that was drawn, before another is drawn.
const STEPS: u64 = 20_000;
/// Primes below it are tried as divisors first.
const SMALL: u64 = 2_000;

/// A key of 2048 bits.
pub(super) struct StandInKey {
    /// PKCS #1 (RFC 8017 appendix A.1.2).
    pub(super) private: Zeroizing<Vec<u8>>,
    /// The modulus, big-endian.
    pub(super) modulus: Vec<u8>,
}

/// Big-endian.
pub(super) const PUBLIC_EXPONENT: [u8; 3] = [1, 0, 1];

impl StandInKey {
    /// None never comes: every step works for the primes that are drawn.
    pub(super) fn of(key: &InstallationKey, name: &str) -> Option<Self> {
        let mut bytes = stand_in::bytes(key, &[b"understudy rsa key 1", name.as_bytes()]);
        let small = small_primes();
        let (p, q) = (prime(&mut bytes, &small)?, prime(&mut bytes, &small)?);
        let (p, q) = if p > q { (p, q) } else { (q, p) };
        let one = U1024::ONE;
        let (before_p, before_q) = (p.wrapping_sub(&one), q.wrapping_sub(&one));
        let modulus: U2048 = p.concatenating_mul(&q);
        let phi: U2048 = before_p.concatenating_mul(&before_q);
        let coefficient = Option::from(q.invert_odd_mod_vartime(&Option::from(Odd::new(p))?))?;
        let parts = [
            vec![0],
            modulus.to_be_bytes().as_ref().to_vec(),
            PUBLIC_EXPONENT.to_vec(),
            inverse_of_exponent(&phi)?.to_be_bytes().as_ref().to_vec(),
            p.to_be_bytes().as_ref().to_vec(),
            q.to_be_bytes().as_ref().to_vec(),
            inverse_of_exponent(&before_p)?.to_be_bytes().as_ref().to_vec(),
            inverse_of_exponent(&before_q)?.to_be_bytes().as_ref().to_vec(),
            U1024::to_be_bytes(&coefficient).as_ref().to_vec(),
        ];
        let integers: Vec<u8> = parts.iter().flat_map(|part| der::integer(part)).collect();
        let modulus = modulus.to_be_bytes().as_ref().to_vec();
        Some(Self { private: Zeroizing::new(der::sequence(&integers)), modulus })
    }
}

/// The first prime at or after a number that is drawn, of full length, and one less than which the exponent does not divide.
fn prime(bytes: &mut impl Iterator<Item = u8>, small: &[u64]) -> Option<U1024> {
    loop {
        let mut drawn: Vec<u8> = bytes.take(BYTES).collect();
        // Two numbers of such a length have a product of twice the length.
        *drawn.first_mut()? |= 0b1100_0000;
        *drawn.last_mut()? |= 1;
        let start = U1024::from_be_slice(&drawn);
        let remainders: Option<Vec<u64>> = small.iter().map(|prime| remainder(&start, *prime)).collect();
        let remainders = remainders?;
        let of_exponent = remainder(&start, EXPONENT)?;
        let hopeful = |step: &u64| {
            let divisible = |(prime, rest): (&u64, &u64)| (rest + step).is_multiple_of(*prime);
            !small.iter().zip(&remainders).any(divisible) && (of_exponent + step) % EXPONENT != 1
        };
        let numbers =
            (0..STEPS).step_by(2).filter(hopeful).map(|step| start.wrapping_add(&U1024::from_u64(step)));
        // A sum that went over the end is smaller.
        if let Some(found) =
            numbers.filter(|number| *number >= start).find(|number| is_prime(Flavor::Any, number))
        {
            return Some(found);
        }
    }
}

/// d with d × e = 1 modulo `modulus`: the one k below e for which e divides k × modulus + 1 leads to it.
fn inverse_of_exponent<const LIMBS: usize>(modulus: &Uint<LIMBS>) -> Option<Uint<LIMBS>> {
    let rest = remainder(modulus, EXPONENT)?;
    // By Fermat's little theorem, e being a prime.
    let inverse = power(rest, EXPONENT - 2);
    let factor = (EXPONENT - inverse) % EXPONENT;
    // k × modulus = e × (k × quotient) + k × rest, so that no number is longer than the modulus.
    let (quotient, _) = modulus.div_rem_limb(divisor(EXPONENT)?);
    let whole = quotient.wrapping_mul(&Uint::<LIMBS>::from_u64(factor));
    let over = (u128::from(factor) * u128::from(rest) + 1) / u128::from(EXPONENT);
    Some(whole.wrapping_add(&Uint::from_u64(u64::try_from(over).ok()?)))
}

/// Modulo the exponent.
fn power(base: u64, mut exponent: u64) -> u64 {
    let (mut base, mut result) = (base % EXPONENT, 1_u64);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = result * base % EXPONENT;
        }
        base = base * base % EXPONENT;
        exponent >>= 1;
    }
    result
}

fn remainder<const LIMBS: usize>(number: &Uint<LIMBS>, by: u64) -> Option<u64> {
    Some(u64::from(number.rem_limb(divisor(by)?)))
}

fn divisor(number: u64) -> Option<NonZero<Limb>> {
    Option::from(NonZero::new(Limb::from(number)))
}

fn small_primes() -> Vec<u64> {
    let mut primes: Vec<u64> = Vec::new();
    for number in 3..SMALL {
        if number % 2 == 1 && !primes.iter().any(|prime| number.is_multiple_of(*prime)) {
            primes.push(number);
        }
    }
    primes
}

#[cfg(test)]
mod tests {
    use ring::rand::SystemRandom;
    use ring::signature::{RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, RsaKeyPair, RsaPublicKeyComponents};

    use super::*;

    /// ring checks a private key's consistency when it reads one.
    #[test]
    fn a_key_signs_and_is_the_same_for_one_name_of_one_installation() {
        let of =
            |byte: u8, name: &str| StandInKey::of(&InstallationKey::from_bytes(&[byte; 32]), name).unwrap();
        for (byte, name) in [(1, "a"), (2, "a"), (1, "b")] {
            let key = of(byte, name);
            assert_eq!((key.modulus.len(), key.modulus[0] >> 7), (256, 1));
            let pair = RsaKeyPair::from_der(&key.private).unwrap();
            let mut signature = vec![0; 256];
            pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), b"text", &mut signature).unwrap();
            let public = RsaPublicKeyComponents { n: key.modulus.as_slice(), e: PUBLIC_EXPONENT.as_slice() };
            public.verify(&RSA_PKCS1_2048_8192_SHA256, b"text", &signature).unwrap();
            assert!(public.verify(&RSA_PKCS1_2048_8192_SHA256, b"other", &signature).is_err());
        }
        assert!(of(1, "a").private == of(1, "a").private);
        assert!(of(1, "a").modulus != of(1, "b").modulus && of(1, "a").modulus != of(2, "a").modulus);
    }

    /// What running containers hold must stay good, whatever a library does.
    #[test]
    fn the_key_of_a_name_never_changes() {
        let key = StandInKey::of(&InstallationKey::from_bytes(&[1; 32]), "a").unwrap();
        let digest = ring::digest::digest(&ring::digest::SHA256, &key.private);
        let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "cad6369a85321d36e71b9e69bd6e89cd2b91fd223bad72bcf35886e0870c2fd4");
    }
}
